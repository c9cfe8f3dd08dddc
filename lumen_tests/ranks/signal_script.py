"""A program that trains in small slow steps, and leaves what a test of signals needs to know."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import lumen
from lumen_tests.models import Classifier, digest, loader


class Slow(Classifier):
    """It says where it is, and takes its time."""

    def __init__(self, out: Path, pause: float) -> None:
        super().__init__(dropout=0.3)
        self.out, self.pause = out, pause

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        rank = self.trainer.world.rank
        (self.out / f"pid-{rank}").write_text(str(os.getpid()))
        if self.global_step >= 3:
            (self.out / f"ready-{rank}").touch()
        time.sleep(self.pause)
        return super().training_step(batch, batch_idx)


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    out = Path(options.out)
    lumen.seed_everything(4)
    module = Slow(out, options.pause)
    trainer = lumen.Trainer(
        accelerator="cpu",
        devices=options.devices,
        max_epochs=2,
        min_epochs=2,
        log_every_n_steps=options.log_every,
        default_root_dir=out,
        enable_progress_bar=False,
        seed=5,
    )
    train = loader(160, 4 // options.devices, shuffle=True, num_workers=options.workers)
    trainer.fit(module, train, ckpt_path="auto")
    result = {"digest": digest(module), "step": trainer.global_step}
    (out / f"result-{trainer.world.rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
