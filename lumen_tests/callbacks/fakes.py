"""A trainer for callbacks: what they read of a run, over a real `Run` on the fake runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lumen.callbacks.base import Callback, dispatch_table
from lumen.core.policy import Policy
from lumen.core.progress import Progress, TrainState
from lumen.loop.evaluating import evaluate
from lumen.loop.fitting import fit
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.testing import FakeRuntime


class FakeTrainer:
    """Runs callbacks through the real loops; its properties are those of a Trainer."""

    def __init__(
        self, callbacks: Sequence[Callback], policy: Policy | None = None, *, rank: int = 0, loggers: Sequence[Any] = ()
    ) -> None:
        self.callbacks = list(callbacks)
        self.policy_given = policy or Policy()
        self.is_global_zero = rank == 0
        self.loggers = list(loggers)
        self.optimizers: list[Any] = []
        self.records: list[tuple[int, dict[str, float]]] = []
        self.run: Run | None = None
        self.num_training_batches: int | None = None
        self.num_val_batches: list[int | None] = []
        self.max_epochs = self.policy_given.max_epochs
        self.max_steps = -1 if self.policy_given.max_steps is None else self.policy_given.max_steps
        self.accumulate_grad_batches = self.policy_given.accumulate

    def start(self, runtime: FakeRuntime, stage: Stage, state: TrainState | None = None, log: Any = None) -> Run:
        """A run with this trainer's callbacks; `log(run)` is called in each step, as a user's `self.log` would be."""
        hooks = dispatch_table(self.callbacks, object(), object, (self, None))
        for call in hooks["setup"]:
            call(stage.value)
        run = self.run = Run(runtime, self.policy_given, hooks, stage, state or TrainState())
        run.eval_loaders = len(runtime.evaluation)
        self.num_val_batches = [len(loader) for loader in runtime.evaluation]
        if log is not None:
            forward, eval_step = runtime.forward_backward, runtime.eval_step
            runtime.forward_backward = lambda *args: (log(run), forward(*args))[1]  # type: ignore[method-assign]
            runtime.eval_step = lambda *args: (log(run), eval_step(*args))[1]  # type: ignore[method-assign]
        return run

    def fit(
        self, runtime: FakeRuntime, *, state: TrainState | None = None, log: Any = None, sanity: bool = False
    ) -> Run:
        """A whole fit, with what a session does around the loop."""
        run = self.start(runtime, Stage.FIT, state, log)
        return self._closed(run, lambda: fit(run, sanity=sanity))

    def evaluate(self, runtime: FakeRuntime, stage: Stage, *, log: Any = None) -> Run:
        """A validation, test or prediction alone."""
        run = self.start(runtime, stage, log=log)
        return self._closed(run, lambda: evaluate(run, stage))

    def _closed(self, run: Run, work: Any) -> Run:
        try:
            work()
        except BaseException as error:
            run.fire("on_exception", error)
            raise
        finally:
            run.fire("teardown", run.stage.value)
        return run

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        self.records.append((self.progress.step, dict(metrics)))

    @property
    def progress(self) -> Progress:
        return self.run.progress if self.run is not None else Progress()

    @property
    def current_epoch(self) -> int:
        return self.progress.epoch

    @property
    def plan(self) -> Any:
        return self.run.plan if self.run is not None else None

    @property
    def policy(self) -> Policy | None:
        return self.run.policy if self.run is not None else None

    @property
    def stop_reason(self) -> Any:
        return self.run.stopped if self.run is not None else None

    @property
    def stop_message(self) -> str:
        return self.run.reason if self.run is not None else ""

    @property
    def sanity_checking(self) -> bool:
        return self.run is not None and self.run.stage is Stage.SANITY

    @property
    def callback_metrics(self) -> Mapping[str, float]:
        return self.run.logbook.callback if self.run is not None else {}

    @property
    def progress_bar_metrics(self) -> Mapping[str, float]:
        return self.run.logbook.progress_bar() if self.run is not None else {}
