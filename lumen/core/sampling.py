"""Sampling: which samples each rank takes in each batch, as a function of configuration, world and cursor.

An epoch's order is cut into global batches of ``world.size * batch_size`` positions, from the cursor on; in one, rank r
takes positions ``start + r, start + r + size, ...``. So a rank's shard differs every epoch, and the number of samples
consumed says where a run stands, whatever the number of ranks or the batch size before or after.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs
import numpy as np

from lumen.core.permute import LARGEST, Integers, Order, order
from lumen.core.world import World
from lumen.errors import ConfigError

_AHEAD = 4096  # positions computed at once by `epoch_batches`: a slice of 32 costs as much as one of 1000


class Tail(enum.Enum):
    """What happens to the end of an epoch that does not fill the ranks.

    PAD: the last global batch may be short; it is filled up to a multiple of the ranks from the head of the order, so
    that every rank takes equally many samples: fewer than ``world.size`` of them twice. For training.
    DROP: a global batch that is not full is left out. For training.
    KEEP: no sample twice and none left out; ranks may be uneven, or have nothing at all. For evaluation.
    """

    PAD = "pad"
    DROP = "drop"
    KEEP = "keep"


@attrs.frozen(kw_only=True)
class Sequential:
    """Samples in the dataset's own order."""


@attrs.frozen(kw_only=True)
class Shuffled:
    """Samples in an order of its own for each epoch; see `lumen.core.permute`."""


def _positive(_: object, field: attrs.Attribute[int], value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(field.name, got=value, allowed="an int >= 1")


def _length(_: object, field: attrs.Attribute[int], value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise ConfigError(field.name, got=value, allowed="an int from 0 to 2**62")


@attrs.frozen(kw_only=True)
class SamplerConfig:
    """How a dataset is sampled.

    Args:
        length: Samples in the dataset, from 0 to 2**62.
        batch_size: Samples per rank and batch, >= 1.
        order: `Sequential()` or `Shuffled()`.
        seed: Of the shuffled order, >= 0.
        tail: What happens at the end of an epoch.

    Raises:
        ConfigError: A value is out of range.

    Example:
        >>> config = SamplerConfig(length=10, batch_size=4, order=Sequential(), seed=0, tail=Tail.PAD)
        >>> three = [World(size=3, rank=r, local_size=3, local_rank=r, node=0) for r in range(3)]
        >>> [positions(config, world, Cursor(), 0).tolist() for world in three]
        [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    """

    length: int = attrs.field(validator=_length)
    batch_size: int = attrs.field(validator=_positive)
    order: Sequential | Shuffled = attrs.field(factory=Sequential)
    seed: int = 0
    tail: Tail = Tail.PAD


@attrs.frozen(kw_only=True)
class Cursor:
    """Where a run stands in its data.

    Args:
        epoch: Epochs finished, >= 0.
        consumed: Samples of the present epoch that were trained on, over all ranks, >= 0.
    """

    epoch: int = 0
    consumed: int = 0


def epoch_end(config: SamplerConfig, world: World, cursor: Cursor) -> int:
    """The position at which the epoch ends: beyond the length where the tail is padded, before it where it is dropped.

    Example:
        >>> config = SamplerConfig(length=10, batch_size=4, tail=Tail.DROP)
        >>> epoch_end(config, World.single(), Cursor(consumed=1))
        9
    """
    left = max(0, config.length - cursor.consumed)
    if config.tail is Tail.PAD:
        return cursor.consumed + -(-left // world.size) * world.size
    if config.tail is Tail.DROP:
        whole = world.size * config.batch_size
        return cursor.consumed + left // whole * whole
    return cursor.consumed + left


def batches_left(config: SamplerConfig, world: World, cursor: Cursor) -> int:
    """Batches that this rank still takes in the epoch; with PAD and DROP the same on every rank.

    Example:
        >>> batches_left(SamplerConfig(length=10, batch_size=4), World.single(), Cursor())
        3
    """
    left = epoch_end(config, world, cursor) - cursor.consumed
    mine = -(-max(0, left - world.rank) // world.size)
    return -(-mine // config.batch_size)


def global_samples(config: SamplerConfig, world: World, cursor: Cursor, batch: int) -> int:
    """Samples of the dataset in a global batch, over all ranks; padding does not count.

    Args:
        config: How the dataset is sampled.
        world: The ranks.
        cursor: Where the epoch goes on.
        batch: Number of the batch, counted from the cursor.

    Example:
        >>> global_samples(SamplerConfig(length=10, batch_size=4), World.single(), Cursor(), 2)
        2
    """
    start, stop = _bounds(config, world, cursor, batch)
    return max(0, min(stop, config.length) - start)


def _bounds(config: SamplerConfig, world: World, cursor: Cursor, batch: int) -> tuple[int, int]:
    whole = world.size * config.batch_size
    start = cursor.consumed + batch * whole
    return start, min(start + whole, epoch_end(config, world, cursor))


def positions(config: SamplerConfig, world: World, cursor: Cursor, batch: int) -> Integers:
    """The samples of one batch of this rank; any batch of any epoch in the time of a batch.

    Args:
        config: How the dataset is sampled.
        world: The ranks, and which one this is.
        cursor: Where the epoch goes on.
        batch: Number of the batch, counted from the cursor, >= 0.

    Returns:
        int64, shape [samples of the batch]; empty beyond the epoch's end.
    """
    start, stop = _bounds(config, world, cursor, batch)
    places = np.arange(start + world.rank, max(stop, start + world.rank), world.size, dtype=np.int64)
    return _samples(config, _order(config, cursor.epoch), places)


def epoch_batches(config: SamplerConfig, world: World, cursor: Cursor) -> Iterator[Integers]:
    """This rank's batches for the rest of the epoch, in order; the same as `positions` for each, but cheaper.

    Args:
        config: How the dataset is sampled.
        world: The ranks, and which one this is.
        cursor: Where the epoch goes on.
    """
    end, size = epoch_end(config, world, cursor), config.batch_size
    computed = _order(config, cursor.epoch)
    at_once = max(1, _AHEAD // size) * size * world.size
    for start in range(cursor.consumed, end, at_once):
        places = np.arange(start + world.rank, min(start + at_once, end), world.size, dtype=np.int64)
        samples = _samples(config, computed, places)
        for first in range(0, len(samples), size):
            yield samples[first : first + size]


def _order(config: SamplerConfig, epoch: int) -> Order | None:
    return order(config.length, config.seed, epoch) if isinstance(config.order, Shuffled) else None


def _samples(config: SamplerConfig, computed: Order | None, places: Integers) -> Integers:
    """The samples at positions of the epoch's order; positions beyond its length wrap to its head."""
    if not places.size:
        return places
    places = places % config.length
    return places if computed is None else computed.at(places)
