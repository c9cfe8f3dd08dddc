"""Where no command line can be repeated, as in this pytest, ranks are new processes, and what they changed comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumen
from lumen.core.policy import StopReason
from lumen_tests.models import Classifier, digest, loader
from lumen_tests.ranks.test_two_ranks import MODULE, ROOT, result, run

pytestmark = pytest.mark.dist


def trainer(folder: Path, *callbacks: lumen.Callback, **more: Any) -> lumen.Trainer:
    return lumen.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        default_root_dir=folder,
        gradient_clip_val=1.0,
        enable_progress_bar=False,
        callbacks=callbacks,
        **more,
    )


def test_all_that_ranks_changed_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Counter(lumen.Callback):
        """Of a class that no other process could import."""

        def __init__(self) -> None:
            self.batches = 0
            self.trainer: Any = None

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            self.batches += 1
            self.trainer = trainer
            module.losses = [*getattr(module, "losses", []), float(trainer.world.rank)]
            print("batch on rank", trainer.world.rank)

    lumen.seed_everything(4)
    module, counter = Classifier(), Counter()
    weight = module.net[0].weight
    ours = trainer(tmp_path / "ours", counter, seed=5)
    ours.fit(module, loader(96, 16, shuffle=True), loader(21, 4))
    assert ours.stop_reason is StopReason.MAX_EPOCHS
    tested = ours.test(module, loader(23, 4))[0]
    run(["-m", MODULE, "--out", str(tmp_path), "--devices", "2"])
    assert digest(module) == result(tmp_path)["digest"]
    assert module.net[0].weight is weight
    assert tested == result(tmp_path)["tested"]
    assert counter.batches == 6
    assert module.losses == [0.0] * 6
    assert counter.trainer is ours
    assert module.trainer is ours
    assert ours.global_step == 6
    assert set(ours.callback_metrics) >= {"test_acc"}
    assert Path(ours.checkpoint_callback.last_model_path).is_dir()
    said = capsys.readouterr()
    assert said.out.count("batch on rank 0") == 6
    assert said.err.count("[rank 1] batch on rank 1") == 6
    with pytest.raises(lumen.CheckpointError, match="Call it during fit"):
        ours.save_checkpoint(tmp_path / "late")


class RefusedError(Exception):
    """A user's own."""


class Failing(Classifier):
    """Does what it is told to, on rank 1."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.world.rank == 1:
            if self.how == "raise":
                raise RefusedError("bad sample", 7)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(batch, batch_idx)


def test_an_error_of_a_rank_is_raised_here_with_its_traceback_as_the_cause(tmp_path: Path) -> None:
    module = Failing("raise")
    before = digest(module)
    with pytest.raises(RefusedError) as raised:
        trainer(tmp_path).fit(module, loader(32, 8))
    assert raised.value.args == ("bad sample", 7)
    assert "rank 1 failed first" in str(raised.value.__cause__)
    assert 'raise RefusedError("bad sample", 7)' in str(raised.value.__cause__)
    assert digest(module) == before


def test_a_rank_that_is_killed_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(lumen.RankError, match=r"rank 1: it was ended by SIGKILL, last seen in fit"):
        trainer(tmp_path).fit(Failing("kill"), loader(32, 8))


def test_what_cannot_travel_is_named(tmp_path: Path) -> None:
    class Locked(lumen.Callback):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(lumen.LaunchError, match=r"the callback Locked: it cannot travel.*lock"):
        trainer(tmp_path, Locked()).fit(Classifier(), loader(32, 8))


def test_fits_one_after_the_other_draw_their_seeds_as_in_this_process(tmp_path: Path) -> None:
    def seeds() -> list[int | None]:
        lumen.seed_everything(11)
        found = []
        for _ in range(2):
            ours = trainer(tmp_path, logger=False, enable_checkpointing=False)
            ours.fit(Classifier(), loader(32, 8))
            found.append(ours.seed)
        return found

    first, second = seeds()
    lumen.seed_everything(11)
    assert first == int(np.random.randint(0, 2**31 - 1))
    assert second != first


PROMPT = """
import lumen, paddle
from lumen_tests.models import Classifier, loader

class Mine(Classifier):
    def training_step(self, batch, batch_idx):
        self.size = self.trainer.world.size
        return super().training_step(batch, batch_idx)

module = Mine()
trainer = lumen.Trainer(accelerator="cpu", devices=2, max_epochs=1, logger=False, enable_checkpointing=False)
trainer.fit(module, loader(32, 8))
print("steps", trainer.global_step, "size", module.size)
"""


def test_a_class_typed_at_a_prompt_trains_on_two_ranks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-i"],
        input=PROMPT.replace("\n\nmodule", "\n\n\nmodule"),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )
    assert "steps 2 size 2" in done.stdout, done.stderr
    assert done.stderr.count("lumen: in a prompt or a notebook, ranks are new processes") == 1


class Leaving(Classifier):
    """Leaves in the first step, on one rank or on all."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.steps = [0]

    def on_train_start(self) -> None:
        class HomelessError(Exception):
            """It has a lambda, which does not matter, and a lock, which does."""

        if self.how == "all exit":
            sys.exit(0)
        if self.trainer.world.rank == 1 and self.how == "exit 7":
            sys.exit(7)
        if self.trainer.world.rank == 1:
            raise HomelessError("with a lock", threading.Lock())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("all exit", "the ranks: they ended, with exit code 0"),
        ("exit 7", "rank 1: SystemExit: 7"),
        ("raise", r"rank 1: .*HomelessError: \('with a lock', <unlocked"),
    ],
)
def test_ranks_that_leave_or_raise_what_cannot_travel_are_told(how: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(lumen.RankError, match=words):
        trainer(tmp_path).fit(Leaving(how), loader(32, 8))


def test_what_cannot_travel_back_is_named_and_the_rest_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Opens(lumen.Callback):
        def __init__(self) -> None:
            self.file: Any = None
            self.steps = 0

        def on_train_batch_end(self, *_: Any) -> None:
            self.file = self.file or (tmp_path / "notes").open("a")
            self.steps += 1

    opens = Opens()
    trainer(tmp_path, opens).fit(Classifier(), loader(32, 8))
    assert (opens.steps, opens.file) == (4, None)
    assert "lumen: what the run made of Opens.file cannot travel back" in capsys.readouterr().err
