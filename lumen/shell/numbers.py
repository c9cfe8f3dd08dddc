"""Reading scalars from the device."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumen.core.metrics import Reduce
from lumen.errors import DataError
from lumen.shell.paddle_shim import paddle

Tensor: Any = paddle.Tensor


def held(value: Any) -> Any:
    """The value without its graph, so that keeping it keeps no activations."""
    return value.detach() if isinstance(value, Tensor) else value


def check_scalar(name: str, value: Any) -> None:
    """Refuses what is not one number.

    Raises:
        DataError: The value has several elements, or is no number at all.
    """
    if isinstance(value, (numbers.Real, np.generic)):
        return
    if isinstance(value, (Tensor, np.ndarray)):
        if value.size == 1:
            return
        raise DataError(
            f"self.log({name!r})",
            got=f"a value of shape {list(value.shape)}",
            allowed="one number",
            do="Log its mean().",
        )
    raise DataError(f"self.log({name!r})", got=type(value).__name__, allowed="a number or a tensor with one element")


def stacked(values: Sequence[Any]) -> Any:
    """Scalars as one float64 tensor of shape [n], in their order, on the device of the tensors among them."""
    groups: dict[Any, list[int]] = {}
    for index, value in enumerate(values):
        groups.setdefault(value.dtype if isinstance(value, Tensor) else None, []).append(index)
    parts = []
    for dtype, members in groups.items():
        if dtype is None:
            parts.append(paddle.to_tensor([float(values[i]) for i in members], dtype="float64"))
        else:
            parts.append(paddle.stack([values[i].reshape([]) for i in members]).astype("float64"))
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([np.asarray(members) for members in groups.values()]))
    return paddle.concat(parts)[paddle.to_tensor(order)]


def read(values: Sequence[Any]) -> list[float]:
    """The values as floats: one transfer from the device, none if there is no tensor among them."""
    if not any(isinstance(value, Tensor) for value in values):
        return [float(value) for value in values]
    with paddle.no_grad():
        out: list[float] = stacked(values).numpy().tolist()
    return out


def fold(reduce: Reduce, values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Many scalars as one float64 scalar, kept on the device.

    Args:
        reduce: MEAN gives the weighted mean, so that the result can stand for all of them with their joint weight.
        values: The scalars.
        weights: As many weights.
    """
    with paddle.no_grad():
        all_values = stacked(values)
        if reduce is Reduce.MEAN:
            share = np.asarray(weights, "float64")
            if not share.sum():
                return all_values.sum() * 0.0
            return (all_values * paddle.to_tensor(share / share.sum())).sum()
        return {Reduce.SUM: all_values.sum, Reduce.MIN: all_values.min, Reduce.MAX: all_values.max}[reduce]()
