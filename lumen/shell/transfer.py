"""Moving batches to the device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from lumen.shell.paddle_shim import paddle

_Tensor: Any = paddle.Tensor


def data_place(name: str | None, own: Any) -> Any:
    """Where batches go.

    Args:
        name: "cpu", "gpu", "gpu:1", or None: where the module is.
        own: Where that is.
    """
    kind, _, number = (name or "").partition(":")
    if kind == "cpu":
        return paddle.CPUPlace()
    if kind == "gpu" and (number or not isinstance(own, paddle.CUDAPlace)):
        return paddle.CUDAPlace(int(number or 0))
    return own


def to_device(batch: Any, place: Any) -> Any:
    """The same batch with its tensors on a device, and its arrays made tensors.

    Dicts, lists, tuples, namedtuples, attrs classes and dataclasses are walked, and rebuilt as what they were if
    anything in them moved; everything else is left as it is.

    Args:
        batch: Any nesting of these.
        place: A `paddle.CPUPlace` or `paddle.CUDAPlace`; None where there is only one, so that a tensor need not be
            asked for its own (which costs 2 us on 2.6.2).
    """
    kind = type(batch)
    if place is None and (kind is tuple or kind is list):
        for item in batch:
            if type(item) is not _Tensor:
                break
        else:
            return batch
    return map_leaves(batch, is_array, lambda leaf: _moved(leaf, place))


def _moved(leaf: Any, place: Any) -> Any:
    to_gpu = isinstance(place, paddle.CUDAPlace)
    if not isinstance(leaf, _Tensor):
        leaf = paddle.to_tensor(leaf, place=paddle.CPUPlace() if to_gpu else place)
    if place is None or leaf.place._equals(place):
        return leaf
    # to a GPU without waiting: a copy that waits would wait for the step before it too, which is still being computed
    return leaf._copy_to(place, not to_gpu)


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, or an array that can be made one: of numbers or truth values."""
    return isinstance(value, _Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc")


def map_leaves(batch: Any, is_leaf: Callable[[Any], bool], convert: Callable[[Any], Any]) -> Any:
    """The same nesting with its leaves converted; containers in which nothing changed are kept, not copied.

    Objects of attrs classes and dataclasses are copied and given the new values: neither their `__init__` nor their
    validators run again.

    Args:
        batch: Any nesting of dicts, lists, tuples, namedtuples, attrs classes and dataclasses.
        is_leaf: What is to be converted.
        convert: Gives a leaf's new value.
    """
    if is_leaf(batch):
        return convert(batch)
    kind = type(batch)
    if isinstance(batch, (list, tuple)):
        items = [map_leaves(item, is_leaf, convert) for item in batch]
        if all(new is old for new, old in zip(items, batch, strict=True)):
            return batch
        return kind(*items) if hasattr(batch, "_fields") else kind(items)
    if isinstance(batch, Mapping):
        entries = {key: map_leaves(value, is_leaf, convert) for key, value in batch.items()}
        if all(entries[key] is batch[key] for key in batch):
            return batch
        return entries if kind is dict else kind(entries)
    names = _fields(batch)
    values = {name: getattr(batch, name) for name in names}
    changed = {name: map_leaves(value, is_leaf, convert) for name, value in values.items()}
    changed = {name: value for name, value in changed.items() if value is not values[name]}
    if not changed:
        return batch
    twin = copy.copy(batch)
    for name, value in changed.items():
        object.__setattr__(twin, name, value)
    return twin


def _fields(batch: Any) -> list[str]:
    """The fields of an object of an attrs class or a dataclass; none of anything else."""
    if isinstance(batch, type):
        return []
    if dataclasses.is_dataclass(batch):
        return [field.name for field in dataclasses.fields(batch)]
    return [field.name for field in attrs.fields(type(batch))] if attrs.has(type(batch)) else []


def batch_size_of(batch: Any) -> int:
    """The leading dimension of the first tensor or array in a batch; 1 if there is none.

    Args:
        batch: Any nesting of dicts, lists, tuples, attrs classes and dataclasses.

    Example:
        >>> batch_size_of({"ids": np.zeros((8, 3)), "name": "x"})
        8
    """
    return _first_dimension(batch) or 1


def _first_dimension(batch: Any) -> int | None:
    if isinstance(batch, (_Tensor, np.ndarray)):
        return int(batch.shape[0]) if len(batch.shape) else None
    if isinstance(batch, Mapping):
        parts: Any = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch
    else:
        parts = [getattr(batch, name) for name in _fields(batch)]
    for part in parts:
        found = _first_dimension(part)
        if found is not None:
            return found
    return None
