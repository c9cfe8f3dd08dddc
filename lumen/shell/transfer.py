"""Moving batches to the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from lumen.shell.paddle_shim import paddle

_Tensor: Any = paddle.Tensor


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
    if isinstance(batch, _Tensor):
        return batch if place is None or batch.place._equals(place) else batch._copy_to(place, True)
    if isinstance(batch, np.ndarray):
        return paddle.to_tensor(batch, place=place)
    if isinstance(batch, (list, tuple)):
        moved = [to_device(item, place) for item in batch]
        if all(new is old for new, old in zip(moved, batch, strict=True)):
            return batch
        return kind(*moved) if hasattr(batch, "_fields") else kind(moved)
    if isinstance(batch, Mapping):
        items = {key: to_device(value, place) for key, value in batch.items()}
        if all(items[key] is batch[key] for key in batch):
            return batch
        return items if kind is dict else kind(items)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return _rebuilt(batch, [f.name for f in dataclasses.fields(batch) if f.init], place, dataclasses.replace)
    if attrs.has(kind):
        return _rebuilt(batch, [f.name for f in attrs.fields(kind) if f.init], place, attrs.evolve)
    return batch


def _rebuilt(batch: Any, names: list[str], place: Any, replace: Any) -> Any:
    moved = {name: to_device(getattr(batch, name), place) for name in names}
    changed = {name: value for name, value in moved.items() if value is not getattr(batch, name)}
    return replace(batch, **{name.lstrip("_"): value for name, value in changed.items()}) if changed else batch


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
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = [getattr(batch, f.name) for f in dataclasses.fields(batch)]
    elif attrs.has(type(batch)):
        parts = [getattr(batch, f.name) for f in attrs.fields(type(batch))]
    else:
        return None
    for part in parts:
        found = _first_dimension(part)
        if found is not None:
            return found
    return None
