"""Policy: the validated, frozen form of the Trainer's arguments that decide what happens when."""

from __future__ import annotations

import enum
from typing import Literal

import attrs

from lumen.core.cadence import Every, Unit
from lumen.errors import ConfigError


class StopReason(enum.Enum):
    """Why a run ended."""

    MAX_EPOCHS = "max_epochs"
    MAX_STEPS = "max_steps"
    REQUEST = "request"


@attrs.frozen(kw_only=True)
class Clip:
    """How gradients are clipped before an optimizer step.

    Args:
        value: Largest norm, or largest absolute value of an element, > 0.
        algorithm: ``"norm"`` (the global norm of all gradients) or ``"value"`` (each element).
    """

    value: float
    algorithm: Literal["norm", "value"] = "norm"

    def __attrs_post_init__(self) -> None:
        if not self.value > 0:
            raise ConfigError("Clip.value", got=self.value, allowed="a number > 0")
        if self.algorithm not in ("norm", "value"):
            raise ConfigError("Clip.algorithm", got=self.algorithm, allowed='"norm" or "value"')


@attrs.frozen(kw_only=True)
class Validation:
    """When the validation loop runs during a fit.

    Args:
        every: The interval.
        nth_epoch: Count the interval, which is one in batches or epochs, inside each epoch, and only in every n-th
            epoch (>= 1). None: count over the whole run, across epochs.
    """

    every: Every
    nth_epoch: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.nth_epoch is None:
            return
        if self.nth_epoch < 1:
            raise ConfigError("Validation.nth_epoch", got=self.nth_epoch, allowed="an int >= 1 or None")
        if self.every.unit not in (Unit.BATCH, Unit.EPOCH):
            raise ConfigError(
                "Validation.every",
                got=str(self.every),
                allowed="batches or epochs, where the interval is counted inside an epoch",
                do="Set nth_epoch=None to count it over the whole run.",
            )


@attrs.frozen(kw_only=True)
class Policy:
    """What a run does when; the same on every rank.

    Args:
        max_epochs: Stop after so many epochs, >= 0; None: no limit.
        max_steps: Stop after so many optimizer steps, >= 0; None: no limit.
        min_epochs: Requests to stop wait until so many epochs are done, >= 0.
        min_steps: Requests to stop wait until so many steps are done, >= 0.
        accumulate: Batches per optimizer step, >= 1.
        log: When the values of `self.log` are read and written; None: never.
        validate: When validation runs; None: never.
        checkpoint: When checkpoint callbacks are asked; any of the intervals.
        checkpoint_on_validation: Ask checkpoint callbacks after each validation too.
        agree: When the ranks share their requests, beside the moments at which they wait anyway.
        schedule: When the learning-rate scheduler moves: in steps or epochs; None: there is none.
        clip: Gradient clipping; None: none.
        epoch_batches: Batches in the present epoch; None: not known beforehand.
    """

    max_epochs: int | None = None
    max_steps: int | None = None
    min_epochs: int = 0
    min_steps: int = 0
    accumulate: int = 1
    log: Every | None = None
    validate: Validation | None = None
    checkpoint: tuple[Every, ...] = ()
    checkpoint_on_validation: bool = False
    agree: Every | None = None
    schedule: Every | None = None
    clip: Clip | None = None
    epoch_batches: int | None = None

    def __attrs_post_init__(self) -> None:
        least = {"max_epochs": 0, "max_steps": 0, "min_epochs": 0, "min_steps": 0, "accumulate": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ConfigError(f"Policy.{name}", got=value, allowed=f"an int >= {bound}")

    @property
    def needs_epoch_length(self) -> bool:
        """Whether some interval ends inside an epoch, as a share of it, so that the number of batches must be known."""
        inside = self.validate is not None and self.validate.nth_epoch is not None
        if inside and self.validate is not None and self.validate.every.unit is Unit.EPOCH:
            return True
        return any(rule.unit is Unit.EPOCH and type(rule.n) is not int for rule in self._rules())

    @property
    def counts_seconds(self) -> bool:
        """Whether some interval is a time, so that the ranks must agree on the clock."""
        return any(rule.unit is Unit.SECOND for rule in self._rules())

    def _rules(self) -> list[Every]:
        validate = self.validate.every if self.validate is not None else None
        rules = (self.log, validate, self.agree, self.schedule, *self.checkpoint)
        return [rule for rule in rules if rule is not None]
