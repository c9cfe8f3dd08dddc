"""Reading scalars from the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lumen.core.metrics import Reduce
from lumen.errors import DataError
from lumen.shell import numbers
from lumen.shell.paddle_shim import paddle


def test_mixed_scalars_come_back_in_order() -> None:
    values: list[Any] = [
        1.5,
        paddle.to_tensor(2.5),
        np.float32(3.5),
        paddle.to_tensor([4], dtype="int64"),
        5,
        paddle.to_tensor([6.5], dtype="float64"),
        paddle.to_tensor(7.5),
    ]
    assert numbers.read(values) == [1.5, 2.5, 3.5, 4.0, 5.0, 6.5, 7.5]
    assert numbers.read([]) == []


def test_nothing_is_read_from_the_device_where_there_is_no_tensor() -> None:
    assert numbers.read([1, 2.5, np.int64(3)]) == [1.0, 2.5, 3.0]


@pytest.mark.parametrize(
    ("reduce", "expected"), [(Reduce.MEAN, 2.5), (Reduce.SUM, 6.0), (Reduce.MIN, 1.0), (Reduce.MAX, 3.0)]
)
def test_fold_stays_on_the_device_in_float64(reduce: Reduce, expected: float) -> None:
    folded = numbers.fold(reduce, [paddle.to_tensor(1.0), 2.0, paddle.to_tensor([3.0])], [1.0, 1.0, 4.0])
    assert isinstance(folded, numbers.Tensor)
    assert "float64" in str(folded.dtype)
    assert math.isclose(numbers.read([folded])[0], expected)


def test_a_held_value_keeps_no_graph() -> None:
    weight = paddle.to_tensor([1.0], stop_gradient=False)
    assert numbers.held(weight * 2).stop_gradient
    assert numbers.held(3.0) == 3.0


@pytest.mark.parametrize("value", [paddle.zeros([2]), np.zeros(3), "text", None, [1.0]])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match="'x'"):
        numbers.check_scalar("x", value)
