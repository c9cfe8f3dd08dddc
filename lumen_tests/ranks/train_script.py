"""A program as a user writes it, for the tests of several ranks: trains, tests, writes what it ended with."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import lumen
from lumen_tests.models import Classifier, digest, loader


class Failing(Classifier):
    """Raises on one rank at one step."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.failing_rank = rank

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.world.rank == self.failing_rank and self.global_step == 3:
            raise ValueError(f"bad sample on rank {self.failing_rank}")
        return super().training_step(batch, batch_idx)


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--fail-on", type=int, default=-1)
    parser.add_argument("--ckpt-path")
    parser.add_argument("--accelerator", default="cpu")
    options = parser.parse_args()
    lumen.seed_everything(4)
    module = Failing(options.fail_on)
    trainer = lumen.Trainer(
        accelerator=options.accelerator,
        devices=options.devices if options.devices > 1 else "auto",
        max_epochs=options.epochs,
        accumulate_grad_batches=options.accumulate,
        default_root_dir=options.out,
        enable_progress_bar=False,
        gradient_clip_val=1.0,
        seed=5,
    )
    trainer.fit(module, loader(96, options.batch_size, shuffle=True), loader(21, 4), ckpt_path=options.ckpt_path)
    tested = trainer.test(module, loader(23, 4))[0]
    rank = trainer.world.rank
    np.savez(
        Path(options.out) / f"weights-{rank}.npz",
        **{name: value.numpy() for name, value in module.state_dict().items()},
    )
    (Path(options.out) / f"result-{rank}.json").write_text(
        json.dumps(
            {
                "digest": digest(module),
                "tested": tested,
                "val": dict(trainer.callback_metrics),
                "size": trainer.world.size,
                "step": trainer.global_step,
            }
        )
    )


if __name__ == "__main__":
    main()
