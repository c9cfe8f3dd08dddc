"""Records: plain data of version 1 for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.orders.bucketed import Cut
from lumen.core.policy import StopReason
from lumen.core.progress import Progress, TrainState
from lumen.core.records import from_record, to_record
from lumen.core.requests import Agreed, Request
from lumen.core.world import World
from lumen.errors import CheckpointError

counts = st.integers(0, 2**60)
progresses = st.builds(
    Progress,
    **dict.fromkeys(
        ("epoch", "batch", "window", "step", "skipped", "batches", "consumed", "samples", "window_samples"), counts
    ),
    seconds=st.floats(0, 1e9),
    seconds_before=st.floats(0, 1e9),
)
requests = st.builds(Request, stop=st.booleans(), save=st.booleans(), reason=st.text(), seconds=st.floats(0, 1e6)).map(
    Agreed
)
states = st.builds(
    TrainState, progress=progresses, stopped=st.none() | st.sampled_from(list(StopReason)), asked=requests
)


@given(states)
def test_a_state_survives_a_json_file(state: TrainState) -> None:
    assert from_record(json.loads(json.dumps(to_record(state))), TrainState) == state


GOLDEN: dict[str, Any] = {
    "type": "TrainState",
    "version": 1,
    "fields": {
        "progress": {
            "type": "Progress",
            "version": 1,
            "fields": {
                "epoch": 1,
                "batch": 2,
                "window": 0,
                "step": 9,
                "skipped": 1,
                "batches": 12,
                "consumed": 64,
                "samples": 384,
                "window_samples": 0,
                "seconds": 1.5,
                "seconds_before": 1.0,
            },
        },
        "stopped": {"enum": "StopReason", "value": "max_steps"},
        "asked": {
            "type": "Request",
            "version": 1,
            "fields": {"stop": False, "save": False, "reason": "", "seconds": 0.0},
        },
    },
}


def test_the_golden_record_of_version_1() -> None:
    state = TrainState(progress=Progress(1, 2, 0, 9, 1, 12, 64, 384, 0, 1.5, 1.0), stopped=StopReason.MAX_STEPS)
    assert from_record(GOLDEN, TrainState) == state
    now = to_record(state)
    assert now["version"] == 2
    assert now["fields"]["asked"]["fields"] == GOLDEN["fields"]["asked"]["fields"] | {"signal": 0}
    assert now["fields"]["progress"]["fields"] == GOLDEN["fields"]["progress"]["fields"]
    assert from_record(now, TrainState) == state


def changed(path: list[str], value: Any) -> dict[str, Any]:
    record = json.loads(json.dumps(GOLDEN))
    at = record
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return record


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (changed(["version"], 3), "version 3; allowed: version 2"),
        (changed(["version"], "1"), "version 1; allowed: version 2"),
        (changed(["type"], "World"), "a record of TrainState"),
        (changed(["fields", "stopped"], ...), "missing or unknown: stopped"),
        (changed(["fields", "more"], 1), "missing or unknown: more"),
        (changed(["fields", "progress", "fields", "epoch"], "1"), "Progress.epoch"),
        (changed(["fields", "progress", "fields", "epoch"], True), "Progress.epoch"),
        (changed(["fields", "progress", "fields", "epoch"], None), "Progress.epoch"),
        (changed(["fields", "stopped"], {"enum": "StopReason", "value": "x"}), "stopped"),
        (changed(["fields", "stopped"], {"enum": "os", "value": "x"}), "stopped"),
        (changed(["fields", "asked"], {"type": "Thing"}), "asked"),
        (changed(["fields"], []), "missing or unknown"),
        ([], "a record of TrainState"),
    ],
)
def test_what_is_not_such_a_record_is_refused(record: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        from_record(record, TrainState)


def test_other_values_have_no_record() -> None:
    with pytest.raises(CheckpointError, match="a record of int"):
        to_record(3)
    assert from_record(to_record(World.single()), World) == World.single()


def test_a_field_that_may_be_none_is_checked_when_it_is_not() -> None:
    for cut in (Cut(8, 2, 4), Cut(8, 2, 1, max_tokens=50, max_samples=None, bucket=3)):
        assert from_record(to_record(cut), Cut) == cut
    wrong = to_record(Cut(8, 2, 4))
    wrong["fields"]["max_tokens"] = "many"
    with pytest.raises(CheckpointError, match="max_tokens"):
        from_record(wrong, Cut)
