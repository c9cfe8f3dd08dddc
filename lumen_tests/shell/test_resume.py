"""Resume: bit for bit at any batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lumen
from lumen.errors import CheckpointError
from lumen.shell.paddle_shim import paddle
from lumen_tests.models import Classifier, digest, loader, quiet

EPOCHS, LENGTH = 2, 26  # 7 batches of 4 an epoch, the last one short


class SaveEach(lumen.Callback):
    """Asks for a checkpoint after each step, saves it where one is due, and remembers where."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[str] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer.request_checkpoint()

    def on_checkpoint(self, trainer: Any, module: Any) -> None:
        self.paths.append(trainer.save_checkpoint(self.folder / f"step-{trainer.global_step}"))


def fit(
    root: Path,
    *,
    ckpt_path: str | None = None,
    callbacks: Any = (),
    accumulate: int = 2,
    schedule: str = "step",
    workers: int = 0,
    **options: Any,
) -> Any:
    lumen.seed_everything(11 if ckpt_path is None else 99)  # a resumed process starts from other random numbers
    module = Classifier(dropout=0.4, schedule=schedule)
    trainer = quiet(
        root,
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulate,
        seed=None,
        callbacks=list(callbacks),
        enable_checkpointing=False,
        logger=False,
        **options,
    )
    trainer.fit(module, loader(LENGTH, shuffle=True, num_workers=workers), loader(8), ckpt_path=ckpt_path)
    return trainer, module


@pytest.mark.parametrize("accumulate", [1, 2])
def test_resuming_at_every_step_of_two_epochs_ends_in_the_same_weights(tmp_path: Path, accumulate: int) -> None:
    saving = SaveEach(tmp_path)
    whole, module = fit(tmp_path, callbacks=[saving], accumulate=accumulate)
    assert len(saving.paths) == EPOCHS * -(-7 // accumulate)
    for path in saving.paths:
        trainer, resumed = fit(tmp_path, ckpt_path=path, accumulate=accumulate)
        assert digest(resumed) == digest(module), path
        assert trainer.progress.step == whole.progress.step
        assert trainer.lr_schedulers[0].last_epoch == whole.lr_schedulers[0].last_epoch
        assert dict(trainer.callback_metrics) == dict(whole.callback_metrics), path


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 3, "val_check_interval": 0.4, "gradient_clip_val": 0.5, "log_every_n_steps": 2},
        {"accumulate": 1, "schedule": "epoch", "workers": 2, "val_check_interval": 2},
        {"accumulate": 2, "limit_train_batches": 5, "check_val_every_n_epoch": None, "val_check_interval": 4},
    ],
)
def test_other_settings_resume_as_exactly(tmp_path: Path, options: dict[str, Any]) -> None:
    saving = SaveEach(tmp_path)
    whole, module = fit(tmp_path, callbacks=[saving], **options)
    for path in saving.paths[1::2]:
        trainer, resumed = fit(tmp_path, ckpt_path=path, **options)
        assert digest(resumed) == digest(module), path
        assert trainer.progress.samples == whole.progress.samples
        assert dict(trainer.callback_metrics) == dict(whole.callback_metrics), path


def test_a_finished_run_ends_at_once_and_a_raised_limit_reopens_it(tmp_path: Path) -> None:
    module = Classifier()
    trainer = quiet(tmp_path, max_epochs=2)
    trainer.fit(module, loader(12))
    done = digest(module)
    again = quiet(tmp_path, max_epochs=2)
    fresh = Classifier()
    again.fit(fresh, loader(12), ckpt_path="last")
    assert digest(fresh) == done
    assert again.global_step == 6
    more = quiet(tmp_path, max_epochs=3)
    more.fit(fresh, loader(12), ckpt_path="last")
    assert more.global_step == 9
    assert digest(fresh) != done


def test_last_without_a_checkpoint_is_an_error_and_auto_starts_afresh(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="auto"):
        quiet(tmp_path, max_epochs=1).fit(Classifier(), loader(8), ckpt_path="last")
    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(Classifier(), loader(8), ckpt_path="auto")
    assert trainer.global_step == 2


def test_best_is_the_checkpoint_with_the_best_score(tmp_path: Path) -> None:
    best = lumen.ModelCheckpoint(monitor="val_loss", mode="min")
    module = Classifier(lr=0.5)
    trainer = quiet(tmp_path, max_epochs=4, callbacks=[best])
    trainer.fit(module, loader(12), loader(8))
    scores = trainer.validate(module, loader(8), ckpt_path="best")
    assert scores[0]["val_loss"] == pytest.approx(best.best_model_score, rel=1e-6)


def test_another_model_is_refused_and_left_untouched(tmp_path: Path) -> None:
    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(Classifier(), loader(8))
    path = trainer.checkpoint_callback.last_model_path

    class Wider(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.net = paddle.nn.Sequential(paddle.nn.Linear(4, 9), paddle.nn.ReLU(), paddle.nn.Linear(9, 3))

    other = Wider()
    before = digest(other)
    with pytest.raises(CheckpointError, match=r"net\.0\.weight"):
        quiet(tmp_path, max_epochs=2).fit(other, loader(8), ckpt_path=path)
    assert digest(other) == before


def test_other_data_is_refused_inside_an_epoch_and_told_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quiet(tmp_path / "inside", max_steps=1).fit(Classifier(), loader(8))
    with pytest.raises(CheckpointError, match="begun with 8 samples; now there are 12 samples"):
        quiet(tmp_path / "inside", max_epochs=2).fit(Classifier(), loader(12), ckpt_path="last")
    quiet(tmp_path / "end", max_epochs=1).fit(Classifier(), loader(8))
    trainer = quiet(tmp_path / "end", max_epochs=2)
    trainer.fit(Classifier(), loader(12), ckpt_path="last")
    assert trainer.global_step == 2 + 3
    assert "saved with 8 samples; it goes on with 12 samples" in caplog.text


def test_the_log_of_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    first = quiet(tmp_path, max_epochs=1, log_every_n_steps=1)
    first.fit(Classifier(), loader(12))
    second = quiet(tmp_path, max_epochs=2, log_every_n_steps=1)
    second.fit(Classifier(), loader(12), ckpt_path="last")
    assert second.log_dir == first.log_dir
    assert first.log_dir is not None
    rows = [line.split(",") for line in (Path(first.log_dir) / "metrics.csv").read_text().splitlines()]
    steps = [int(row[1]) for row in rows[1:]]
    assert steps == sorted(steps)
    assert set(steps) == {1, 2, 3, 4, 5, 6}


def test_the_log_is_found_again_when_checkpoints_lie_elsewhere(tmp_path: Path) -> None:
    first = quiet(tmp_path, max_epochs=1, callbacks=[lumen.ModelCheckpoint(tmp_path / "elsewhere")])
    first.fit(Classifier(), loader(12))
    second = quiet(tmp_path, max_epochs=2, callbacks=[lumen.ModelCheckpoint(tmp_path / "elsewhere")])
    second.fit(Classifier(), loader(12), ckpt_path="last")
    assert second.log_dir == first.log_dir


def test_what_module_and_callbacks_add_comes_back(tmp_path: Path) -> None:
    class Adding(Classifier):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = {"numbers": [1, 2.5, None]}

        def on_load_checkpoint(self, checkpoint: Any) -> None:
            self.seen.append(checkpoint["mine"])

    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(Adding(), loader(8))
    module = Adding()
    quiet(tmp_path, max_epochs=2).fit(module, loader(8), ckpt_path="last")
    assert module.seen == [{"numbers": [1, 2.5, None]}]
