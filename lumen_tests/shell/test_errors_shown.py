"""A user's own error: its traceback stays, few lumen frames stand above it, a note says where the run stood."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import lumen
from lumen_tests.models import Classifier, loader, quiet


class Failing(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.global_step == 5:
            raise KeyError("mine")
        return super().training_step(batch, batch_idx)


def test_at_most_four_lumen_frames_above_the_users_line_and_a_note(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine") as caught:
        quiet(tmp_path, max_epochs=3).fit(Failing(), loader(16))
    frames = traceback.extract_tb(caught.value.__traceback__)
    root = f"{Path(lumen.__file__).parent}/"
    assert frames[-1].name == "training_step"
    assert frames[-1].filename == __file__
    assert 1 <= sum(frame.filename.startswith(root) for frame in frames) <= 4
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["lumen: in fit, epoch 1, batch 1, step 5, rank 0 of 1"]


def test_on_exception_and_teardown_are_called_and_the_trainer_can_be_used_again(tmp_path: Path) -> None:
    told: list[Any] = []

    class Told(lumen.Callback):
        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            told.append(exception)

        def teardown(self, trainer: Any, module: Any, stage: str) -> None:
            told.append(stage)

    trainer = quiet(tmp_path, max_epochs=3, callbacks=[Told()])
    with pytest.raises(KeyError) as caught:
        trainer.fit(Failing(), loader(16))
    assert told == [caught.value, "fit"]
    trainer.fit(Classifier(), loader(16))
    assert trainer.current_epoch == 3


def test_an_error_in_a_hook_keeps_its_traceback(tmp_path: Path) -> None:
    class Bad(lumen.Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        quiet(tmp_path, max_epochs=1, callbacks=[Bad()]).fit(Classifier(), loader(8))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "on_train_epoch_end"


@pytest.mark.filterwarnings("ignore")
def test_errors_of_hooks_while_closing_hide_nothing_and_stop_nothing(tmp_path: Path) -> None:
    told: list[str] = []

    class Bad(lumen.Callback):
        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            raise ValueError("in on_exception")

        def teardown(self, trainer: Any, module: Any, stage: str) -> None:
            raise ValueError("in teardown")

    class Later(lumen.Callback):
        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            told.append(type(exception).__name__)

        def teardown(self, trainer: Any, module: Any, stage: str) -> None:
            told.append(stage)

    trainer = quiet(tmp_path, max_epochs=3, callbacks=[Bad(), Later()])
    with pytest.raises(KeyError, match="mine"):
        trainer.fit(Failing(), loader(16))
    assert told == ["KeyError", "fit"]
    with pytest.raises(ValueError, match="in teardown"):
        trainer.fit(Classifier(), loader(16))
    assert told == ["KeyError", "fit", "fit"]
    assert not trainer.running


def test_an_error_at_the_very_end_is_told_too(tmp_path: Path) -> None:
    told: list[str] = []

    class Bad(lumen.Callback):
        def on_fit_end(self, trainer: Any, module: Any) -> None:
            raise ZeroDivisionError

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            told.append(type(exception).__name__)

    with pytest.raises(ZeroDivisionError):
        quiet(tmp_path, max_epochs=1, callbacks=[Bad()]).fit(Classifier(), loader(8))
    assert told == ["ZeroDivisionError"]
