"""What accelerator= and devices= mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.devices import check_data_device, plan_devices
from lumen.errors import ConfigError


@pytest.mark.parametrize(
    ("accelerator", "devices", "gpus", "kind", "ids"),
    [
        ("auto", "auto", 0, "cpu", (0,)),
        ("auto", "auto", 3, "gpu", (0, 1, 2)),
        ("cpu", "auto", 3, "cpu", (0,)),
        ("cpu", 2, 0, "cpu", (0, 1)),
        ("cpu", "2", 0, "cpu", (0, 1)),
        ("gpu", 1, 4, "gpu", (0,)),
        ("gpu", -1, 4, "gpu", (0, 1, 2, 3)),
        ("gpu", "-1", 2, "gpu", (0, 1)),
        ("gpu", [2, 0], 4, "gpu", (2, 0)),
        ("auto", "2, 0", 4, "gpu", (2, 0)),
        ("gpu", "1,", 4, "gpu", None),
        ("cpu", [0, 1], 0, "cpu", (0, 1)),
    ],
)
def test_table(accelerator: str, devices: Any, gpus: int, kind: str, ids: tuple[int, ...] | None) -> None:
    if ids is None:
        with pytest.raises(ConfigError):
            plan_devices(accelerator, devices, gpus=gpus)
        return
    plan = plan_devices(accelerator, devices, gpus=gpus)
    assert (plan.kind, plan.ids) == (kind, ids)


@pytest.mark.parametrize(
    ("accelerator", "devices", "gpus", "message"),
    [
        ("cpu", 0, 0, "devices: got 0.*Use devices=1"),
        ("cpu", "2x", 0, "devices: got '2x'"),
        ("cpu", [], 0, "Name at least one"),
        ("gpu", [0, 0], 2, "named once"),
        ("gpu", [0, 2], 2, "from 0 to 1"),
        ("gpu", [-1], 2, "from 0 to 1"),
        ("gpu", 3, 2, "Paddle sees 2 GPUs"),
        ("gpu", 1, 0, "accelerator: got 'gpu'.*sees no GPU"),
        ("cpu", -1, 0, "how many processes"),
        ("cpu", -2, 0, "devices: got -2"),
        ("cpu", 1.5, 0, r"devices: got 1\.5"),
        ("cpu", True, 0, "devices: got True"),
        ("cpu", ["0"], 0, "devices: got"),
        ("cpuu", 1, 0, "Did you mean 'cpu'"),
        ("cpu", None, 0, "devices"),
    ],
)
def test_wrong_arguments(accelerator: str, devices: Any, gpus: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_devices(accelerator, devices, gpus=gpus)


@given(
    st.sampled_from(["auto", "cpu", "gpu"]),
    st.integers(-3, 9) | st.text(max_size=5) | st.lists(st.integers(-2, 5), max_size=4) | st.none() | st.floats(),
    st.integers(0, 4),
)
def test_anything_gives_distinct_devices_or_a_config_error(accelerator: str, devices: Any, gpus: int) -> None:
    try:
        plan = plan_devices(accelerator, devices, gpus=gpus)
    except ConfigError:
        return
    assert len(set(plan.ids)) == len(plan.ids) >= 1
    assert plan.kind == "cpu" or max(plan.ids) < gpus


@pytest.mark.parametrize("name", [None, "cpu", "gpu", "gpu:0", "gpu:1"])
def test_a_device_for_batches_is_taken_as_it_is_written(name: str | None) -> None:
    assert check_data_device(name, gpus=2) == name


@pytest.mark.parametrize(
    ("name", "gpus", "words"),
    [
        ("gpu", 0, "Paddle sees 0 GPUs here"),
        ("gpu:2", 2, "Paddle sees 2 GPUs here"),
        ("gpu:", 2, "allowed"),
        ("gpu:-1", 2, "allowed"),
        ("gp", 2, "Did you mean 'gpu'"),
        ("cpu:0", 2, "allowed"),
        (0, 2, "allowed"),
    ],
)
def test_a_device_for_batches_that_is_not_there_is_refused(name: object, gpus: int, words: str) -> None:
    with pytest.raises(ConfigError, match=f"data_device.*{words}"):
        check_data_device(name, gpus=gpus)
