"""The strategy of several ranks: checked by name."""

from __future__ import annotations

from typing import Any

import pytest

import lumen
from lumen.core.strategy import FleetStrategy, make_strategy
from lumen.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_sync": "at_stop"}, "Did you mean 'at_step'"),
        ({"gradient_sync": None}, "Known: at_step, auto, overlap"),
        ({"find_unused": True}, "Did you mean 'find_unused_parameters'"),
        ({"find_unused_parameters": 1}, "True or False"),
        ({"comm_buffer_size": 0}, "comm_buffer_size: got 0"),
        ({"last_comm_buffer_size": "1"}, "last_comm_buffer_size"),
        ({"is_collective": False}, "Parameter servers"),
        ({"uneven_data": "padd"}, "Did you mean 'pad'"),
        ({"role_maker": 3}, "a role maker of paddle.distributed.fleet"),
        ({"distributed_strategy": "x"}, "a fleet.DistributedStrategy"),
        ({"gradient_sync": "at_step", "find_unused_parameters": True}, "gradient_sync='overlap', which alone has it"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FleetStrategy(**options)


def test_what_a_trainer_may_be_given() -> None:
    assert make_strategy("auto") == FleetStrategy() == lumen.FleetStrategy(gradient_sync="auto")
    assert make_strategy(FleetStrategy(comm_buffer_size=0.5)).comm_buffer_size == 0.5
    assert [FleetStrategy(gradient_sync=name).sync for name in ("auto", "overlap", "at_step")] == [
        "overlap",
        "overlap",
        "at_step",
    ]
    for wrong in ("ddp", None, FleetStrategy):
        with pytest.raises(ConfigError, match=r"strategy: .*lumen\.FleetStrategy"):
            make_strategy(wrong)
