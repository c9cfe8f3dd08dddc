"""A program whose rank fails some times, in the middle of an epoch, and that asks to be started again."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import lumen
from lumen_tests.models import Classifier, digest, loader


class Failing(Classifier):
    """It fails at one step, as often as it is told to."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(dropout=0.3)
        self.options = options

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        options, marks = self.options, Path(self.options.out)
        if options.fault and self.trainer.world.rank == options.rank and self.global_step == 13:
            done = len(list(marks.glob("mark-*")))
            if done < options.times:
                (marks / f"mark-{done}").touch()
                if options.fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("bad sample")
        return super().training_step(batch, batch_idx)


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--fault", default="")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--max-restarts", type=int, default=0)
    options = parser.parse_args()
    lumen.seed_everything(4)
    module = Failing(options)
    trainer = lumen.Trainer(
        accelerator="cpu",
        devices=options.devices,
        max_epochs=4,
        default_root_dir=options.out,
        enable_progress_bar=False,
        max_restarts=options.max_restarts,
        callbacks=lumen.ModelCheckpoint(every_n_train_steps=5),
        seed=5,
    )
    trainer.fit(module, loader(64, 8 // options.devices, shuffle=True))
    if trainer.is_global_zero:
        (Path(options.out) / "result.json").write_text(
            json.dumps({"digest": digest(module), "steps": trainer.global_step})
        )


if __name__ == "__main__":
    main()
