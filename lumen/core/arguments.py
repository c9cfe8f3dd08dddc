"""The Trainer's arguments as a value: each checked by itself and against the others, then made into a Policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import attrs

from lumen.core.cadence import Every, Unit
from lumen.core.policy import Clip, Policy, Validation
from lumen.core.world import World
from lumen.errors import ConfigError, did_you_mean

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
_UNLIMITED_EPOCHS = 1000
_SECONDS_AGREED = Every(20, Unit.STEP)  # how often several ranks agree on the time, where an interval is one

Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _count(least: int, *, none: bool = False, do: str = "") -> Check:
    """An int that is not below `least`."""

    def check(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None and none:
            return
        if not _is_int(value) or value < least:
            raise ConfigError(field.name, got=value, allowed=f"an int >= {least}{' or None' if none else ''}", do=do)

    return check


def _one_of(*choices: Any) -> Check:
    def check(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
            shown = ", ".join(repr(choice) for choice in choices)
            hint = did_you_mean(value, [c for c in choices if isinstance(c, str)]) if isinstance(value, str) else ""
            raise ConfigError(field.name, got=value, allowed=shown, do=hint)

    return check


def _limit(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if value is None or (_is_int(value) and value >= 0) or (isinstance(value, float) and 0.0 <= value <= 1.0):
        return
    raise ConfigError(
        field.name,
        got=value,
        allowed="an int >= 0 (batches) or a float from 0.0 to 1.0 (share of the batches)",
        do="For a number of batches give an int.",
    )


def _clip(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (not _is_number(value) or value < 0):
        raise ConfigError(field.name, got=value, allowed="a number > 0; 0 or None for no clipping")


def _validation_interval(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if value is None or (_is_int(value) and value >= 1) or (isinstance(value, float) and 0.0 < value <= 1.0):
        return
    if isinstance(value, str):
        Every.parse(value, argument=field.name)
        return
    raise ConfigError(
        field.name,
        got=value,
        allowed='a float in (0.0, 1.0] (share of an epoch), an int >= 1 (batches), or a text such as "500 steps"',
    )


def _log_interval(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, str):
        Every.parse(value, argument=field.name)
    elif not _is_int(value) or value < 0:
        raise ConfigError(
            field.name, got=value, allowed='an int >= 0 (steps; 0: never) or a text such as "0.25 epochs"'
        )


@attrs.frozen(kw_only=True)
class Arguments:
    """What a Trainer was asked for, as far as it decides what happens when; see `lumen.Trainer` for each field.

    Raises:
        ConfigError: A value is not allowed, or two of them contradict each other.

    Example:
        >>> Arguments(max_epochs=3).policy(World.single(), batches=10, has_validation=True).max_epochs
        3
    """

    precision: str = attrs.field(default="32-true", validator=_one_of(*PRECISIONS))
    max_epochs: int | None = attrs.field(default=None, validator=_count(-1, none=True, do="-1 means no limit."))
    min_epochs: int | None = attrs.field(default=None, validator=_count(0, none=True))
    max_steps: int = attrs.field(default=-1, validator=_count(-1, do="-1 means no limit."))
    accumulate_grad_batches: int = attrs.field(default=1, validator=_count(1))
    gradient_clip_val: float | None = attrs.field(default=None, validator=_clip)
    gradient_clip_algorithm: str = attrs.field(default="norm", validator=_one_of("norm", "value"))
    val_check_interval: int | float | str | None = attrs.field(default=None, validator=_validation_interval)
    check_val_every_n_epoch: int | None = attrs.field(default=1, validator=_count(1, none=True))
    log_every_n_steps: int | str = attrs.field(default=50, validator=_log_interval)
    limit_train_batches: int | float | None = attrs.field(default=None, validator=_limit)
    limit_val_batches: int | float | None = attrs.field(default=None, validator=_limit)
    limit_test_batches: int | float | None = attrs.field(default=None, validator=_limit)
    limit_predict_batches: int | float | None = attrs.field(default=None, validator=_limit)
    num_sanity_val_steps: int = attrs.field(default=2, validator=_count(-1, do="-1 means all, 0 none."))
    enable_progress_bar: bool = attrs.field(default=True, validator=_one_of(True, False))
    enable_checkpointing: bool = attrs.field(default=True, validator=_one_of(True, False))
    deterministic: bool | None = attrs.field(default=None, validator=_one_of(None, True, False))
    use_distributed_sampler: bool = attrs.field(default=True, validator=_one_of(True, False))
    num_nodes: int = attrs.field(default=1, validator=_count(1))

    def __attrs_post_init__(self) -> None:
        if self.check_val_every_n_epoch is None and isinstance(self.val_check_interval, float):
            raise ConfigError(
                "val_check_interval with check_val_every_n_epoch=None",
                got=self.val_check_interval,
                allowed="an int: batches counted across epochs",
                do="Give a number of batches, or set check_val_every_n_epoch.",
            )

        limit = self.epoch_limit
        if limit is not None and (self.min_epochs or 0) > limit:
            raise ConfigError(
                "min_epochs with max_epochs", got=f"{self.min_epochs} and {limit}", allowed="min_epochs <= max_epochs"
            )

    @property
    def epoch_limit(self) -> int | None:
        """Most epochs; None: no limit. Without any limit given it is 1000, as in Lightning."""
        if self.max_epochs is None:
            return _UNLIMITED_EPOCHS if self.max_steps == -1 else None
        return None if self.max_epochs == -1 else self.max_epochs

    def policy(
        self,
        world: World,
        *,
        batches: int | None,
        has_validation: bool,
        checkpoint: tuple[Every, ...] = (),
        checkpoint_on_validation: bool = False,
        schedule: Every | None = None,
    ) -> Policy:
        """The policy of a fit.

        Args:
            world: The ranks; alone, requests are honoured at each step.
            batches: Batches in a training epoch on each rank; None: not known.
            has_validation: Whether there is something to validate.
            checkpoint: When checkpoint callbacks want to be asked.
            checkpoint_on_validation: Whether they want to be asked after each validation.
            schedule: How often the scheduler moves.

        Raises:
            ConfigError: An interval cannot be carried out on this many batches.
        """
        policy = Policy(
            max_epochs=self.epoch_limit,
            max_steps=None if self.max_steps == -1 else self.max_steps,
            min_epochs=self.min_epochs or 0,
            accumulate=self.accumulate_grad_batches,
            log=_every_steps(self.log_every_n_steps),
            validate=self._validation(batches) if has_validation else None,
            checkpoint=checkpoint,
            checkpoint_on_validation=checkpoint_on_validation,
            agree=Every(1, Unit.STEP) if world.size == 1 else None,
            schedule=schedule,
            clip=self._clip(),
            epoch_batches=batches,
        )
        if policy.counts_seconds and policy.agree is None:
            policy = attrs.evolve(policy, agree=_SECONDS_AGREED)
        if batches is None and policy.needs_epoch_length:
            raise ConfigError(
                "val_check_interval",
                got=self.val_check_interval,
                allowed="an int or steps, since the number of batches in an epoch is not known",
                do="Give a loader with a length, or count batches.",
            )
        return policy

    def _clip(self) -> Clip | None:
        if not self.gradient_clip_val:
            return None
        return Clip(
            value=float(self.gradient_clip_val),
            algorithm="value" if self.gradient_clip_algorithm == "value" else "norm",
        )

    def _validation(self, batches: int | None) -> Validation:
        interval, nth_epoch = self.val_check_interval, self.check_val_every_n_epoch
        if isinstance(interval, str):
            return Validation(every=Every.parse(interval, argument="val_check_interval"))
        if interval is None or (interval == 1.0 and isinstance(interval, float)):
            return Validation(every=Every(nth_epoch or 1, Unit.EPOCH))
        if isinstance(interval, float):
            return Validation(every=Every(Fraction(interval).limit_denominator(10**6), Unit.EPOCH), nth_epoch=nth_epoch)
        if nth_epoch is not None and batches is not None and interval > batches:
            raise ConfigError(
                "val_check_interval",
                got=interval,
                allowed=f"at most the {batches} batches of an epoch",
                do="Set check_val_every_n_epoch=None to count across epochs.",
            )
        return Validation(every=Every(interval, Unit.BATCH), nth_epoch=nth_epoch)

    def limit(self, name: str, batches: int | None) -> int | None:
        """How many batches of a loader are used; None: all of them.

        Args:
            name: "train", "val", "test" or "predict".
            batches: Batches that the loader has; None: not known.

        Raises:
            ConfigError: A share of an unknown number, or one that leaves no batch.
        """
        argument = f"limit_{name}_batches"
        value = getattr(self, argument)
        if value is None or _is_int(value):
            return None if value is None else int(value)
        if value == 1.0:
            return None
        if batches is None:
            raise ConfigError(argument, got=value, allowed="an int, since the loader has no length")
        if value and int(batches * value) == 0:
            raise ConfigError(
                argument,
                got=value,
                allowed=f"0.0, or at least {1 / batches:.3g}: one of the loader's {batches} batches",
            )
        return int(batches * value)


def _every_steps(value: int | str) -> Every | None:
    if isinstance(value, str):
        return Every.parse(value, argument="log_every_n_steps")
    return Every(value, Unit.STEP) if value else None
