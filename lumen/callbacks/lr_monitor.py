"""LearningRateMonitor: the learning rates among the logged values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from lumen.callbacks.base import Callback
from lumen.core.cadence import Unit
from lumen.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer import Trainer

_INTERVALS = ("step", "epoch")


class LearningRateMonitor(Callback):
    """Logs each optimizer's learning rate as ``lr-AdamW``; a second AdamW is ``lr-AdamW-1``.

    The rate of a record is the one that the next step will use.

    Args:
        logging_interval: "step": with the other values of steps, each `log_every_n_steps`; "epoch": when an epoch
            starts; None: as the scheduler moves, with epochs if there is none.

    Raises:
        ConfigError: An interval that there is not; in `setup`: the Trainer has no logger.

    Attributes:
        last_lrs: The rates logged last.

    Example:
        >>> LearningRateMonitor(logging_interval="steps")
        Traceback (most recent call last):
        lumen.errors.ConfigError: logging_interval: got 'steps'; allowed: "step", "epoch" or None. Did you mean 'step'?
    """

    def __init__(self, logging_interval: Literal["step", "epoch"] | None = None) -> None:
        if logging_interval is not None and logging_interval not in _INTERVALS:
            raise ConfigError(
                "logging_interval",
                got=logging_interval,
                allowed='"step", "epoch" or None',
                do=did_you_mean(str(logging_interval), _INTERVALS),
            )
        self.logging_interval = logging_interval
        self.last_lrs: dict[str, float] = {}

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Refuses a fit without a logger."""
        if stage == "fit" and not trainer.loggers:
            raise ConfigError(
                "LearningRateMonitor",
                got="a Trainer without a logger",
                do="Leave logger=True, or remove this callback.",
            )

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Logs, if epochs count."""
        if not self._by_step(trainer):
            self._log(trainer)

    def on_train_batch_end(self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Logs where the values of steps are logged, if steps count."""
        plan = trainer.plan
        if plan is not None and plan.log and self._by_step(trainer):
            self._log(trainer)

    def _by_step(self, trainer: Trainer) -> bool:
        if self.logging_interval is not None:
            return self.logging_interval == "step"
        schedule = trainer.policy.schedule if trainer.policy is not None else None
        return schedule is not None and schedule.unit is not Unit.EPOCH

    def _log(self, trainer: Trainer) -> None:
        self.last_lrs = learning_rates(trainer.optimizers)
        trainer.log_metrics(self.last_lrs)


def learning_rates(optimizers: Sequence[Any]) -> dict[str, float]:
    """The present learning rate of each optimizer, by the name of its class and its number among those of that class.

    Args:
        optimizers: Objects with a method ``get_lr``.
    """
    seen: Counter[str] = Counter()
    rates: dict[str, float] = {}
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        rates[f"lr-{kind}-{seen[kind]}" if seen[kind] else f"lr-{kind}"] = float(optimizer.get_lr())
        seen[kind] += 1
    return rates
