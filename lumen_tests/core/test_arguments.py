"""The Trainer's arguments as a policy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.arguments import Arguments
from lumen.core.cadence import Every, Unit
from lumen.core.policy import Clip, Validation
from lumen.core.world import World
from lumen.errors import ConfigError

TWO = World(size=2, rank=0, local_size=2, local_rank=0, node=0)


def policy(world: World | None = None, batches: int | None = 10, has_validation: bool = True, **arguments: Any) -> Any:
    return Arguments(**arguments).policy(world or World.single(), batches=batches, has_validation=has_validation)


@pytest.mark.parametrize(
    ("arguments", "epochs", "steps"),
    [
        ({}, 1000, None),
        ({"max_epochs": 3}, 3, None),
        ({"max_epochs": -1}, None, None),
        ({"max_steps": 5}, None, 5),
        ({"max_steps": 5, "max_epochs": 2}, 2, 5),
        ({"max_epochs": 0}, 0, None),
    ],
)
def test_limits(arguments: dict[str, Any], epochs: int | None, steps: int | None) -> None:
    made = policy(**arguments)
    assert (made.max_epochs, made.max_steps) == (epochs, steps)


@pytest.mark.parametrize(
    ("interval", "nth", "expected"),
    [
        (None, 1, Validation(every=Every(1, Unit.EPOCH))),
        (1.0, 3, Validation(every=Every(3, Unit.EPOCH))),
        (0.25, 1, Validation(every=Every(Fraction(1, 4), Unit.EPOCH), nth_epoch=1)),
        (0.1, 2, Validation(every=Every(Fraction(1, 10), Unit.EPOCH), nth_epoch=2)),
        (4, 1, Validation(every=Every(4, Unit.BATCH), nth_epoch=1)),
        (40, None, Validation(every=Every(40, Unit.BATCH))),
        ("500 steps", 1, Validation(every=Every(500, Unit.STEP))),
        ("0.5 epochs", 1, Validation(every=Every(Fraction(1, 2), Unit.EPOCH))),
    ],
)
def test_validation_intervals(interval: Any, nth: int | None, expected: Validation) -> None:
    assert policy(val_check_interval=interval, check_val_every_n_epoch=nth).validate == expected


def test_without_validation_data_nothing_is_validated() -> None:
    assert policy(has_validation=False).validate is None


def test_logging_clipping_and_agreement() -> None:
    assert policy().log == Every(50, Unit.STEP)
    assert policy(log_every_n_steps=0).log is None
    assert policy(log_every_n_steps="0.5 epochs").log == Every(Fraction(1, 2), Unit.EPOCH)
    assert policy().clip is None
    assert policy(gradient_clip_val=0).clip is None
    assert policy(gradient_clip_val=2).clip == Clip(value=2.0, algorithm="norm")
    assert policy().agree == Every(1, Unit.STEP)
    assert policy(TWO).agree is None
    assert policy(TWO, log_every_n_steps="30 s").agree is not None


@given(st.none() | st.integers(0, 50) | st.floats(0, 1), st.integers(1, 40))
def test_limits_of_batches(limit: float | None, batches: int) -> None:
    arguments = Arguments(limit_train_batches=limit)
    try:
        allowed = arguments.limit("train", batches)
    except ConfigError:
        assert isinstance(limit, float)
        assert 0 < limit * batches < 1
        return
    if isinstance(limit, float):
        assert allowed == (None if limit == 1.0 else int(limit * batches))
    else:
        assert allowed == limit


@pytest.mark.parametrize(
    ("arguments", "batches", "message"),
    [
        ({"val_check_interval": 0.5}, None, "val_check_interval.*not known"),
        ({"val_check_interval": 11}, 10, "at most the 10 batches"),
        ({"log_every_n_steps": "0.1 epochs"}, None, "not known"),
    ],
)
def test_intervals_that_cannot_be_carried_out(arguments: dict[str, Any], batches: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy(batches=batches, **arguments)
    with pytest.raises(ConfigError, match="has no length"):
        Arguments(limit_val_batches=0.5).limit("val", None)
