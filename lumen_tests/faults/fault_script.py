"""A program of two ranks, one of which does something bad at a given place."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lumen
from lumen.shell.paddle_shim import paddle
from lumen_tests.models import Classifier, loader, nn


def bad(what: str, out: Path) -> None:
    """Does it, and says when."""
    time.sleep(0.3)  # the other rank gets to where it waits
    (out / "fault-time").write_text(repr(time.time()))
    if what == "raise":
        raise ValueError("bad sample")
    if what == "exit 0":
        sys.exit(0)
    if what == "leave":
        os._exit(0)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "sleep":
        time.sleep(1000)
    if what == "wait":  # for the test, which sends signals
        (out / "waits").touch()
        time.sleep(1000)


class Faulty(Classifier):
    """It does so in one of its methods, in the second epoch."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(dropout=0.0)
        rank = os.environ.get("PADDLE_TRAINER_ID")
        if options.what == "wider" and rank == "1":
            self.net[3] = nn.Linear(8, 5)
        if options.what == "frozen" and rank == "1":
            self.net[0].bias.stop_gradient = True
        self.options, self.out = options, Path(options.out)

    def fault(self, where: str) -> None:
        rank = self.trainer.world.rank
        (self.out / f"pid-{rank}").write_text(str(os.getpid()))
        due = self.trainer.current_epoch == 1 or where == "on_fit_start"
        if where == self.options.where and rank in self.options.ranks and due:
            if self.options.what == "diverge":
                with paddle.no_grad():
                    self.net[3].weight.scale_(1.5)
                return
            bad(self.options.what, self.out)

    def on_fit_start(self) -> None:
        self.fault("on_fit_start")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            self.fault("training_step")
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.fault("validation_step")
        super().validation_step(batch, batch_idx)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.fault("on_save_checkpoint")


class Witness(lumen.Callback):
    """It leaves a file on each rank whose hook is called, and shows that no collective hangs there."""

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        refused = ""
        try:
            trainer.cluster.gather("in a hook", 1)
        except lumen.RankError as error:
            refused = str(error)
        try:
            paddle.distributed.all_reduce(paddle.ones([1]))
            refused += "; Paddle's ran"
        except lumen.RankError as error:
            refused += f"; {error}"
        (module.out / f"told-{trainer.world.rank}").write_text(f"{type(exception).__name__}: {exception}\n{refused}")


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--what", required=True)
    parser.add_argument("--where", default="training_step")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1])
    parser.add_argument("--hang-timeout", type=float, default=300)
    parser.add_argument("--sync", default="auto")
    parser.add_argument("--check-replicas")
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    if options.where == "before" and os.environ.get("PADDLE_TRAINER_ID") == "1":
        bad(options.what, Path(options.out))
    trainer = lumen.Trainer(
        accelerator="cpu",
        devices="auto" if "PADDLE_TRAINERS_NUM" in os.environ else 2,
        max_epochs=2,
        default_root_dir=options.out,
        enable_progress_bar=False,
        hang_timeout=options.hang_timeout,
        strategy=lumen.FleetStrategy(gradient_sync=options.sync),
        callbacks=Witness(),
        num_sanity_val_steps=0,
        check_replicas=options.check_replicas,
        seed=3,
    )

    def began(_: int) -> None:
        (Path(options.out) / f"pid-worker-{os.getpid()}").write_text(str(os.getpid()))

    train = loader(64, 4, num_workers=options.workers, worker_init_fn=began)
    trainer.fit(Faulty(options), train, loader(16, 4))


if __name__ == "__main__":
    main()
