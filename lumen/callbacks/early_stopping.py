"""EarlyStopping: ends a run when a value stops to improve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from lumen.callbacks.base import Callback
from lumen.core.retention import Patience, Verdict, check_mode, check_monitor, observe
from lumen.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer import Trainer


class EarlyStopping(Callback):
    """Asks to stop once a monitored value has not improved for a number of validations.

    A value that is logged in training is compared at each epoch's end instead. A run that was stopped so stays stopped
    when it is resumed, unless it is given more patience.

    Args:
        monitor: Name of the logged value.
        min_delta: An improvement must be larger than this, >= 0.
        patience: Validations (not epochs) without an improvement after which the run ends, >= 0.
        mode: "min" or "max": whether small or large values are good.
        strict: Whether it is an error if the value is not logged; else it is passed over.
        check_finite: Whether the run ends at a NaN or an infinity.
        stopping_threshold: The run ends once the value is better than this.
        divergence_threshold: The run ends once the value is worse than this.

    Raises:
        ConfigError: An argument is wrong; during the run: the monitored value is not logged.

    Attributes:
        wait_count: Validations since the best one.
        best_score: The best value so far.
        stopped_epoch: Epochs that were finished when it asked to stop; 0 before.
        stopping_reason: Why, as a sentence; "" before.

    Example:
        >>> EarlyStopping("val_loss", patience=-1)
        Traceback (most recent call last):
        lumen.errors.ConfigError: patience: got -1; allowed: an int >= 0
    """

    def __init__(
        self,
        monitor: str,
        *,
        min_delta: float = 0.0,
        patience: int = 3,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 0:
            raise ConfigError("patience", got=patience, allowed="an int >= 0")
        if isinstance(min_delta, bool) or not isinstance(min_delta, (int, float)) or not min_delta >= 0:
            raise ConfigError("min_delta", got=min_delta, allowed="a number >= 0")
        self.monitor = monitor
        self.strict = strict
        self._patience = Patience(
            mode=check_mode(mode),
            patience=patience,
            min_delta=float(min_delta),
            check_finite=check_finite,
            stopping_threshold=stopping_threshold,
            divergence_threshold=divergence_threshold,
        )
        self.stopped_epoch = 0
        self.stopping_reason = ""
        self._by_patience = False

    @property
    def patience(self) -> int:
        """Validations without an improvement after which the run ends."""
        return self._patience.patience

    @property
    def state_key(self) -> str:
        """Class and what is monitored; how long to wait may change on a resume."""
        return f"EarlyStopping(monitor={self.monitor},mode={self._patience.mode})"

    @property
    def wait_count(self) -> int:
        """Validations since the best one."""
        return self._patience.waited

    @property
    def best_score(self) -> float | None:
        """The best value so far."""
        return self._patience.best

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Refuses a monitor that can only be a misspelt name of a validation value."""
        if self.strict:
            check_monitor("EarlyStopping(monitor)", self.monitor, trainer.evaluated_metrics)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """A run that it had ended stays ended when it is resumed, unless there is more patience now."""
        if self.stopping_reason and (not self._by_patience or self._patience.waited >= self._patience.patience):
            trainer.request_stop(self.stopping_reason)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Compares a value of the validation, and asks to stop when it is time."""
        if not trainer.sanity_checking and trainer.plan is not None and self.monitor in trainer.evaluated_metrics:
            self._observe(trainer)

    def on_train_epoch_logged(self, trainer: Trainer, module: Module) -> None:
        """Compares a value of the training epoch, and asks to stop when it is time."""
        evaluated = trainer.evaluated_metrics
        if self.monitor in evaluated or (trainer.num_val_batches and not evaluated):  # or it may be one of them
            return
        metrics = trainer.callback_metrics
        if self.monitor in metrics:
            self._observe(trainer)
        elif self.strict:
            raise ConfigError(
                "EarlyStopping(monitor)",
                got=self.monitor,
                allowed="a value logged with self.log",
                do=did_you_mean(self.monitor, metrics) if metrics else "Nothing was logged: log it in validation_step.",
            )

    def _observe(self, trainer: Trainer) -> None:
        value = trainer.callback_metrics[self.monitor]
        self._patience, verdict = observe(self._patience, value)
        if verdict is not Verdict.GO_ON:
            self.stopped_epoch = trainer.current_epoch
            self.stopping_reason = self._reason(verdict, value)
            self._by_patience = verdict is Verdict.PATIENCE
            trainer.request_stop(self.stopping_reason)

    def _reason(self, verdict: Verdict, value: float) -> str:
        name, patience = self.monitor, self._patience
        return {
            Verdict.PATIENCE: f"{name} did not improve on {patience.best} for {patience.waited} validations",
            Verdict.NOT_FINITE: f"{name} is {value}",
            Verdict.REACHED: f"{name} = {value} is better than {patience.stopping_threshold}",
            Verdict.DIVERGED: f"{name} = {value} is worse than {patience.divergence_threshold}",
        }[verdict]

    def state_dict(self) -> Mapping[str, Any]:
        """The best value, how long ago it was, and whether and why it asked to stop."""
        return {
            "best": self._patience.best,
            "waited": self._patience.waited,
            "stopped_epoch": self.stopped_epoch,
            "reason": self.stopping_reason,
            "by_patience": self._by_patience,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back; how long to wait is as this object was told."""
        self._patience = attrs.evolve(self._patience, best=state["best"], waited=state["waited"])
        self.stopped_epoch = state["stopped_epoch"]
        self.stopping_reason = state["reason"]
        self._by_patience = state["by_patience"]
