"""Moving nested batches."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest

from lumen.shell.paddle_shim import paddle
from lumen.shell.transfer import batch_size_of, to_device


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Data:
    x: Any
    name: str = "n"


@attrs.frozen
class Value:
    x: Any
    _hidden: Any = None


ARRAY = np.ones((3, 2), "float32")
PLACES = [None, paddle.CPUPlace()]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("batch", "get"),
    [
        ((ARRAY, 1), lambda b: b[0]),
        ([ARRAY, "text"], lambda b: b[0]),
        ({"a": {"b": [ARRAY]}, "c": None}, lambda b: b["a"]["b"][0]),
        (OrderedDict(a=ARRAY), lambda b: b["a"]),
        (Pair(ARRAY, 2), lambda b: b.x),
        (Data(ARRAY), lambda b: b.x),
        (Value(ARRAY, "h"), lambda b: b.x),
        (Value(1, ARRAY), lambda b: b._hidden),
        (ARRAY, lambda b: b),
    ],
)
def test_arrays_become_tensors_and_containers_stay_what_they_are(batch: Any, get: Any, place: Any) -> None:
    moved = to_device(batch, place)
    if batch is not ARRAY:
        assert type(moved) is type(batch)
    assert isinstance(get(moved), paddle.Tensor)
    np.testing.assert_array_equal(get(moved).numpy(), ARRAY)
    assert isinstance(get(batch), np.ndarray), "the user's batch is left alone"


@pytest.mark.parametrize("place", PLACES)
def test_what_is_in_place_is_not_rebuilt(place: Any) -> None:
    tensor = paddle.ones([2])
    for batch in (
        (tensor, tensor),
        [tensor],
        {"a": tensor},
        Pair(tensor, 1),
        Data(tensor),
        Value(tensor),
        "text",
        3,
        None,
    ):
        assert to_device(batch, place) is batch


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        ((ARRAY, 1), 3),
        ({"name": "x", "ids": paddle.zeros([5, 2])}, 5),
        (Data(ARRAY), 3),
        (Value([ARRAY]), 3),
        ([], 1),
        ("text", 1),
        (np.float32(2.0), 1),
        ((paddle.to_tensor(1.0), ARRAY), 3),
    ],
)
def test_batch_size(batch: Any, size: int) -> None:
    assert batch_size_of(batch) == size
