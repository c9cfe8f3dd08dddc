"""RunView: what callbacks read of a run, and what they ask of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from lumen.callbacks.base import Callback, overrides
from lumen.callbacks.early_stopping import EarlyStopping
from lumen.core.arguments import Arguments
from lumen.core.policy import Policy, StopReason
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import Request
from lumen.core.world import World
from lumen.errors import ConfigError
from lumen.loggers.base import Logger
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.shell import checkpoint_io
from lumen.shell.ranks.cluster import Cluster
from lumen.trainer.ranks import planned_world
from lumen.trainer.snapshot import write_checkpoint

if TYPE_CHECKING:
    from lumen.core.planning import StepPlan
    from lumen.module import Module
    from lumen.trainer import Trainer

_NO_PROGRESS = Progress()


class RunView:
    """The part of a Trainer that is there while it runs: frozen values to read, and requests.

    Attributes:
        arguments: What the Trainer was asked for.
        callbacks: In the order in which they are called.
        loggers: Where logged values go.
        cluster: The ranks, once connected.
        run: The run in hand, or the last one.
        module: The module in hand, or the last one.
        optimizers: The optimizers of the fit.
        lr_schedulers: Their schedulers.
        num_training_batches: Batches in a training epoch on this rank; None: not known.
        num_val_batches: The same for each evaluation loader.
        ckpt_path: The checkpoint that the run goes on from.
        log_dir: The first logger's folder; None without a logger.
        default_root_dir: Where logs and checkpoints go.
        seed: The seed of the run; None before a fit that was given none.
        given_seed: The seed that the Trainer was given.
        running: Whether a run is in hand.
    """

    arguments: Arguments
    callbacks: list[Callback]
    loggers: list[Logger]
    default_root_dir: str
    seed: int | None
    given_seed: int | None

    def __init__(self) -> None:
        self.running = False
        self.cluster: Cluster | None = None
        self.run: Run | None = None
        self.module: Module | None = None
        self.optimizers: list[Any] = []
        self.lr_schedulers: list[Any] = []
        self.num_training_batches: int | None = None
        self.num_val_batches: list[int | None] = []
        self.ckpt_path: str | None = None
        self.log_dir: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to ranks that are new processes: not what a run in this one has left."""
        return {**vars(self), "cluster": None, "run": None, "optimizers": [], "lr_schedulers": []}

    # -- what callbacks ask -----------------------------------------------------------------------------------------

    def request_stop(self, reason: str = "") -> None:
        """Asks to end the run; it ends once all ranks know of it and the minimum of epochs is done."""
        self._running("request_stop").ask(Request(stop=True, reason=reason))

    def request_checkpoint(self, reason: str = "") -> None:
        """Asks for a checkpoint; it is written once all ranks know of it, at the end of a window."""
        self._running("request_checkpoint").ask(Request(save=True, reason=reason))

    def save_checkpoint(self, path: str | os.PathLike[str]) -> str:
        """Writes a checkpoint folder, during a run or after it; every rank must call it. Returns the path."""
        run = self.run if self.run is not None else self._running("save_checkpoint")
        return write_checkpoint(self, run, path)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Deletes a checkpoint folder, on rank 0; never the one that the run goes on from."""
        if self.is_global_zero and (
            self.ckpt_path is None or os.path.realpath(path) != os.path.realpath(self.ckpt_path)
        ):
            checkpoint_io.remove(path)

    @property
    def checkpoint_requested(self) -> bool:
        """Whether a checkpoint was asked for, and all ranks know."""
        return self.run is not None and self.run.saving

    def is_fresh(self, name: str) -> bool:
        """Whether a logged value is that of the present weights: not one of an evaluation of earlier ones."""
        run = self.run
        if run is None:
            return False
        evaluated = name in run.logbook.evaluated
        waits = name not in run.logbook.callback and run.eval_loaders > 0 and not run.logbook.evaluated
        return not waits and (not evaluated or (run.plan is not None and run.plan.validate))

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Writes values to the loggers at once, with the present counters."""
        run = self._running("log_metrics")
        if not self.is_global_zero or not metrics:
            return
        progress = run.progress
        counters = {
            "batch": progress.batches,
            "step": progress.step,
            "epoch": progress.epoch,
            "samples": progress.samples,
            "seconds": round(run.seconds, 6),
        }
        for logger in self.loggers:
            logger.log_metrics(metrics, counters)

    @property
    def should_stop(self) -> bool:
        """Whether a request to stop is agreed on and waits; set it to True to ask for one."""
        return self.run is not None and self.run.asked.stop

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        if value:
            self.request_stop("trainer.should_stop was set")

    def _running(self, what: str) -> Run:
        if self.run is None or not self.running:
            raise ConfigError(f"trainer.{what}", got="no run", do="Call it during fit, validate, test or predict.")
        return self.run

    # -- what callbacks read ----------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The counters of the run."""
        return self.run.progress if self.run is not None else _NO_PROGRESS

    @property
    def state(self) -> TrainState:
        """The value that a checkpoint stores."""
        return self.run.state if self.run is not None else TrainState()

    @property
    def plan(self) -> StepPlan | None:
        """The plan of the batch in hand."""
        return self.run.plan if self.run is not None else None

    @property
    def policy(self) -> Policy | None:
        """What the run does when."""
        return self.run.policy if self.run is not None else None

    @property
    def stage(self) -> Stage | None:
        """Which loop runs."""
        return self.run.stage if self.run is not None else None

    @property
    def world(self) -> World:
        """The ranks; before a run, as they will be."""
        return self.cluster.world if self.cluster is not None else planned_world(cast("Trainer", self))

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.world.rank == 0

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.world.size

    @property
    def global_rank(self) -> int:
        """This rank's number in the job."""
        return self.world.rank

    @property
    def local_rank(self) -> int:
        """This rank's number on its node."""
        return self.world.local_rank

    @property
    def current_epoch(self) -> int:
        """Number of the epoch in hand, from 0, its validation and its end included; after a fit the epochs finished."""
        run = self.run
        return run.epoch if run is not None and run.epoch is not None else self.progress.epoch

    @property
    def global_step(self) -> int:
        """Optimizer steps attempted."""
        return self.progress.step

    @property
    def max_epochs(self) -> int | None:
        """Most epochs; None: no limit."""
        return self.arguments.epoch_limit

    @property
    def max_steps(self) -> int:
        """Most optimizer steps; -1: no limit."""
        return self.arguments.max_steps

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches per optimizer step."""
        return self.arguments.accumulate_grad_batches

    @property
    def sanity_checking(self) -> bool:
        """Whether the batches ahead of training are being validated."""
        return self.stage is Stage.SANITY

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run ended; None while it goes on."""
        return self.run.stopped if self.run is not None else None

    @property
    def stop_message(self) -> str:
        """What was said when a stop was asked for; "" if nothing was."""
        return self.run.reason if self.run is not None else ""

    @property
    def callback_metrics(self) -> Mapping[str, float]:
        """The latest values of everything logged, merged over the ranks."""
        return self.run.logbook.callback if self.run is not None else {}

    @property
    def evaluated_metrics(self) -> Mapping[str, float]:
        """All values of the last evaluation, the sanity check included."""
        return self.run.logbook.evaluated if self.run is not None else {}

    @property
    def logged_metrics(self) -> Mapping[str, float]:
        """What was last written to the loggers."""
        return self.run.logbook.logged if self.run is not None else {}

    @property
    def progress_bar_metrics(self) -> Mapping[str, float]:
        """The values logged with `prog_bar=True`; reading them costs a host read."""
        return self.run.logbook.progress_bar() if self.run is not None else {}

    @property
    def logger(self) -> Logger | None:
        """The first logger."""
        return self.loggers[0] if self.loggers else None

    @property
    def checkpoint_callback(self) -> Any:
        """The first callback that writes checkpoints, or None."""
        return next((c for c in self.callbacks if overrides(c, "on_checkpoint")), None)

    @property
    def early_stopping_callback(self) -> Any:
        """The first `EarlyStopping`, or None."""
        return next((c for c in self.callbacks if isinstance(c, EarlyStopping)), None)
