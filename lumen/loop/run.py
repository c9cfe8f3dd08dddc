"""Run: the one mutable place of a run, where the loops keep the present value of each frozen state."""

from __future__ import annotations

import sys
from typing import Any

from lumen.core.faults import Position
from lumen.core.planning import StepPlan
from lumen.core.policy import Policy, StopReason
from lumen.core.progress import Progress, TrainState
from lumen.core.quiet import advance_quiet, quiet_batches, quiet_plans
from lumen.core.requests import NO_AGREED, NO_REQUEST, Agreed, Request, merge
from lumen.loop.logbook import Logbook
from lumen.loop.runtime import Hooks, Runtime, Stage


class Run:
    """What the loops work on.

    Args:
        runtime: Carries the effects out.
        policy: What happens when.
        hooks: Who is called at each hook.
        stage: Which loop is to run.
        state: Where to go on from.

    Attributes:
        progress: The counters.
        plan: The plan of the batch in hand; None before the first.
        stopped: Why the run ended.
        asked: Agreed requests that still wait.
        logbook: The logged values.
        eval_loaders: Number of evaluation loaders; 0: no validation.
        saving: Whether the checkpoint that is due now was asked for.
        quiet: How many of the next batches only train.
        quiet_plans: The plans of such batches: inside a window, and closing one.
        quiet_done: Batches trained on since `progress` was last added up; likewise `quiet_skipped`, `quiet_samples`.
        accumulate: Batches per window.
        window: Batches in the window that is open.
        eval_batch: Number of the batch in hand in its evaluation loader, from 0.
        begun: Training batches that this run has begun.
        held: What this rank asked for since the ranks last shared their requests.
        signal: The signal that the ranks agreed to stop for; 0: none.
        epoch: Number of the epoch in hand, from 0, until all that belongs to it is done; None outside of training.
        base_seconds: Training time of the runs that this one goes on from.
    """

    def __init__(self, runtime: Runtime, policy: Policy, hooks: Hooks, stage: Stage, state: TrainState) -> None:
        self.runtime = runtime
        self.policy = policy
        self.hooks = hooks
        runtime.hooks = hooks
        self.stage = stage
        self._progress: Progress = state.progress
        self.stopped: StopReason | None = state.stopped
        self.asked: Agreed = state.asked
        self.plan: StepPlan | None = None
        self.logbook = Logbook(runtime, weighted=runtime.world.size > 1 or policy.accumulate > 1)
        self.eval_loaders = 0
        self.base_seconds = state.progress.seconds
        self.started = runtime.clock()
        self.reason = ""
        self.signal = 0
        self.epoch: int | None = None
        self.saving = False
        self.counts_seconds = policy.counts_seconds
        self.quiet = 0
        self.quiet_plans = quiet_plans(policy)
        self.accumulate = policy.accumulate
        self.window = state.progress.window
        self.eval_batch = 0
        self.quiet_done = 0
        self.quiet_skipped = 0
        self.quiet_samples = 0
        self.begun = 0
        self.held: Request = NO_REQUEST

    @property
    def progress(self) -> Progress:
        """The counters as they are now; batches of a quiet stretch are added up when somebody asks."""
        if self.quiet_done:
            self._progress = advance_quiet(
                self.policy,
                self._progress,
                batches=self.quiet_done,
                skipped=self.quiet_skipped,
                samples=self.quiet_samples,
            )
            self.quiet_done = self.quiet_skipped = self.quiet_samples = 0
        return self._progress

    @progress.setter
    def progress(self, value: Progress) -> None:
        self._progress = value
        self.quiet_done = self.quiet_skipped = self.quiet_samples = 0

    def position(self) -> Position:
        """Where the run stands, in numbers; it changes nothing, so that another thread may ask."""
        progress, done = self._progress, self.quiet_done
        return Position(
            stage=self.stage.value,
            epoch=progress.epoch,
            batch=progress.batch + done if self.stage is Stage.FIT else self.eval_batch,
            step=progress.step + (progress.window + done) // self.accumulate - self.quiet_skipped,
            begun=self.begun,
        )

    def look_ahead(self) -> None:
        """Finds how many of the next batches are quiet, and which plans they have."""
        progress, length = self.progress, self.policy.epoch_batches
        alone = self.runtime.world.size == 1
        left = None if length is None else length - progress.batch
        waiting = self.asked is not NO_AGREED or self.counts_seconds
        self.quiet = 0 if waiting else quiet_batches(self.policy, progress, left=left, alone=alone)

    @property
    def state(self) -> TrainState:
        """The value that a checkpoint stores."""
        return TrainState(progress=self.progress, stopped=self.stopped, asked=self.asked)

    @property
    def seconds(self) -> float:
        """Training time so far on this rank, earlier runs included."""
        return self.base_seconds + self.runtime.clock() - self.started

    def ask(self, request: Request) -> None:
        """Holds a request of this rank until the ranks share theirs."""
        self.held = merge(self.held, request)

    def take(self) -> Request:
        """What this rank asked for since the last time."""
        held, self.held = self.held, NO_REQUEST
        return held

    def fire(self, hook: str, *args: Any) -> None:
        """Calls whoever overrides the hook."""
        for call in self.hooks[hook]:
            call(*args)

    def write(self, record: dict[str, float]) -> None:
        """Hands values to the loggers; replaced by whoever owns them."""
        self.logbook.logged = record

    def results(self) -> list[dict[str, float]]:
        """The values of the last evaluation, one dict a loader, with those that belong to none in each."""
        if self.eval_loaders <= 1:
            return [dict(self.logbook.evaluated)]
        results: list[dict[str, float]] = [{} for _ in range(self.eval_loaders)]
        for name, value in self.logbook.evaluated.items():
            plain, _, index = name.rpartition("/dataloader_idx_")
            for loader in [int(index)] if plain else range(self.eval_loaders):
                results[loader][name] = value
        return results

    def annotate(self, error: BaseException) -> None:
        """Adds to an error, once, where the run stood; the error itself and its traceback stay as they are."""
        if getattr(error, "_lumen_noted", False):
            return
        progress = self.progress
        where = (
            f"lumen: in {self.stage.value}, epoch {progress.epoch}, batch {progress.batch}, step {progress.step}, "
            f"rank {self.runtime.world.rank} of {self.runtime.world.size}"
        )
        if sys.version_info >= (3, 11):
            error.add_note(where)
        error._lumen_noted = where  # type: ignore[attr-defined]
