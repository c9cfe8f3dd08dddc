"""Packing: batches on their way from a worker process, whole and as what they were."""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

import attrs
import numpy as np

from lumen.shell.transfer import is_array, map_leaves


class Opaque:
    """A value that travels as it is: nothing in it is made a tensor.

    Args:
        value: The value.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class _Sealed:
    """What is pickled here and now: a value that cannot be is an error where it was made, not a hang of the queue."""

    def __init__(self, value: Any) -> None:
        self.sent = bytes(reduction.ForkingPickler.dumps(value))

    def open(self) -> Any:
        return reduction.ForkingPickler.loads(self.sent)


@attrs.frozen
class _Slot:
    """Where an array stands in a batch whose arrays travel beside it."""

    index: int


def pack(batch: Any) -> list[Any]:
    """A batch as Paddle sends it whole: its arrays, at least one, and behind them the nesting that they stand in.

    Paddle itself makes a list of a namedtuple and loses arrays in objects of attrs classes and dataclasses.

    Args:
        batch: Any nesting of dicts, lists, tuples, namedtuples, attrs classes and dataclasses.
    """
    arrays: list[Any] = []

    def taken(leaf: Any) -> _Slot:
        arrays.append(leaf)
        return _Slot(len(arrays) - 1)

    nesting = map_leaves(batch, is_array, taken)
    return [*(arrays or [np.zeros(1, "float32")]), _Sealed(nesting)]


def unpack(sent: list[Any]) -> Any:
    """The batch that `pack` took apart.

    Args:
        sent: What came.
    """
    *arrays, nesting = sent
    return map_leaves(nesting.open(), lambda value: isinstance(value, _Slot), lambda slot: arrays[slot.index])
