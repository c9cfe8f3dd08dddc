"""Policy: what is refused, and what a policy needs to know."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attrs
import pytest

from lumen.core.cadence import Every, Unit
from lumen.core.policy import Clip, Policy, Validation
from lumen.errors import ConfigError

SHARE, EPOCH, STEP, SECOND = (
    Every(Fraction(1, 2), Unit.EPOCH),
    Every(1, Unit.EPOCH),
    Every(5, Unit.STEP),
    Every(60, Unit.SECOND),
)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_epochs", -1), ("max_steps", -1), ("min_epochs", -1), ("min_steps", -2), ("accumulate", 0)],
)
def test_counts_that_are_none_are_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"Policy\.{field}: got {value}"):
        Policy(**{field: value})


def test_the_least_counts_are_taken() -> None:
    assert Policy(max_epochs=0, max_steps=0, min_epochs=0, min_steps=0, accumulate=1).accumulate == 1


@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_clip_needs_a_length(value: float) -> None:
    with pytest.raises(ConfigError, match=r"Clip\.value"):
        Clip(value=value)


def test_a_clip_needs_an_algorithm_that_there_is() -> None:
    with pytest.raises(ConfigError, match=r"Clip\.algorithm.*norm"):
        Clip(value=1.0, algorithm="l2")  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [Unit.STEP, Unit.SAMPLE, Unit.SECOND])
def test_inside_epochs_only_batches_and_epochs_are_counted(unit: Unit) -> None:
    with pytest.raises(ConfigError, match="nth_epoch=None"):
        Validation(every=Every(5, unit), nth_epoch=1)
    assert Validation(every=Every(5, unit)).nth_epoch is None


def test_every_zeroth_epoch_is_refused() -> None:
    with pytest.raises(ConfigError, match="nth_epoch"):
        Validation(every=EPOCH, nth_epoch=0)


@pytest.mark.parametrize("field", ["log", "validate", "checkpoint", "agree", "schedule"])
@pytest.mark.parametrize(
    ("every", "length", "clock"), [(SHARE, True, False), (STEP, False, False), (SECOND, False, True)]
)
def test_a_policy_says_what_it_needs_to_know(field: str, every: Every, length: bool, clock: bool) -> None:
    value: Any = {"validate": Validation(every=every), "checkpoint": (STEP, every)}.get(field, every)
    policy = attrs.evolve(Policy(), **{field: value})
    assert policy.needs_epoch_length is length
    assert policy.counts_seconds is clock


def test_whole_epochs_need_no_length_unless_they_are_counted_inside_one() -> None:
    assert not Policy(log=EPOCH, validate=Validation(every=EPOCH), checkpoint=(EPOCH,)).needs_epoch_length
    assert Policy(validate=Validation(every=EPOCH, nth_epoch=2)).needs_epoch_length
    assert not Policy(validate=Validation(every=Every(3, Unit.BATCH), nth_epoch=2)).needs_epoch_length


def test_it_is_a_value() -> None:
    assert Policy(max_epochs=3, log=STEP) == Policy(max_epochs=3, log=Every(5, Unit.STEP))
    assert hash(Policy(log=STEP)) == hash(Policy(log=Every(5, Unit.STEP)))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Policy().accumulate = 2  # type: ignore[misc]
