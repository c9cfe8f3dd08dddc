"""Sampling: which samples each rank takes in each batch, as a function of configuration, world and cursor.

An epoch's order is cut into global batches of ``world.size * batch_size`` positions, from the cursor on; in one, rank r
takes positions ``start + r, start + r + size, ...``. So a rank's shard differs every epoch, and the number of samples
consumed says where a run stands, whatever the number of ranks or the batch size before or after.

Where an order makes batches by tokens, a global batch is one of its batches for each rank.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterator

import attrs
import numpy as np

from lumen.core.orders.base import Arrangement, Order, Sequential, Table
from lumen.core.orders.bucketed import Bucketed, Cut, Grouped
from lumen.core.permute import LARGEST, Integers
from lumen.core.world import World
from lumen.errors import ConfigError

_AHEAD = 4096  # positions computed at once when iterating: a slice of 32 costs as much as one of 1000


class Tail(enum.Enum):
    """What happens to the end of an epoch that does not fill the ranks.

    PAD: the last global batch may be short; it is filled up to a multiple of the ranks from the head of the order, so
    that every rank takes equally many samples: fewer than ``world.size`` of them twice. Batches by tokens are cut
    smaller instead, as far as there are samples. For training.
    DROP: a global batch that is not full is left out. For training.
    KEEP: no sample twice and none left out; ranks may be uneven, or have nothing at all. For evaluation.
    """

    PAD = "pad"
    DROP = "drop"
    KEEP = "keep"


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
        order: Which samples, and in what order.
        seed: Of all orders, >= 0.
        tail: What happens at the end of an epoch.

    Raises:
        ConfigError: A value is out of range.

    Example:
        >>> config = SamplerConfig(length=10, batch_size=4, order=Sequential(), seed=0, tail=Tail.PAD)
        >>> three = [World(size=3, rank=r, local_size=3, local_rank=r, node=0) for r in range(3)]
        >>> [plan_epoch(config, world, Cursor()).indices(0).tolist() for world in three]
        [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    """

    length: int = attrs.field(validator=_length)
    batch_size: int = attrs.field(validator=_positive)
    order: Order = attrs.field(factory=Sequential)
    seed: int = 0
    tail: Tail = Tail.PAD


@attrs.frozen(kw_only=True)
class Cursor:
    """Where a run stands in its data.

    Args:
        epoch: Epochs finished, >= 0.
        consumed: Samples of the present epoch that were trained on, over all ranks, >= 0.
        cuts: How the samples consumed were dealt, where the order depends on that (`Bucketed`) and it was otherwise
            than now.
    """

    epoch: int = 0
    consumed: int = 0
    cuts: tuple[Cut, ...] = ()


class EpochPlan(abc.ABC):
    """The rest of an epoch on one rank, from a cursor on: any of its batches at once.

    Attributes:
        batches: Batches that this rank takes; with PAD and DROP the same on every rank.
    """

    batches: int

    @abc.abstractmethod
    def indices(self, batch: int) -> Integers:
        """The samples of one batch of this rank.

        Args:
            batch: Its number, counted from the cursor, >= 0.

        Returns:
            int64, shape [samples of the batch]; empty beyond the epoch's end.
        """

    @abc.abstractmethod
    def samples(self, batch: int) -> int:
        """Samples of the dataset in a global batch, over all ranks; padding does not count.

        Args:
            batch: Its number, counted from the cursor, >= 0.
        """

    def __iter__(self) -> Iterator[Integers]:
        """This rank's batches, in order."""
        return map(self.indices, range(self.batches))


class Dealt(EpochPlan):
    """Global batches of equal size, dealt to the ranks sample by sample.

    Args:
        arrangement: The epoch's order.
        config: How the dataset is sampled.
        world: The ranks, and which one this is.
        start: Samples consumed.
    """

    def __init__(self, arrangement: Arrangement, config: SamplerConfig, world: World, start: int) -> None:
        self._arrangement, self._world = arrangement, world
        self._size, self._start = config.batch_size, start
        self._whole = world.size * config.batch_size
        left = max(0, arrangement.n - start)
        if config.tail is Tail.PAD:
            left = -(-left // world.size) * world.size
        elif config.tail is Tail.DROP:
            left = left // self._whole * self._whole
        self.end = start + left
        self.batches = -(-max(0, left - world.rank) // self._whole)

    def _bounds(self, batch: int) -> tuple[int, int]:
        start = self._start + batch * self._whole
        return start, min(start + self._whole, self.end)

    def indices(self, batch: int) -> Integers:
        """See `EpochPlan.indices`."""
        return self._places(*self._bounds(batch))

    def _places(self, start: int, end: int) -> Integers:
        """This rank's samples between two positions; positions beyond the order wrap to its head."""
        first = start + self._world.rank
        places = np.arange(first, max(first, end), self._world.size, dtype=np.int64)
        return self._arrangement.at(places % self._arrangement.n) if places.size else places

    def samples(self, batch: int) -> int:
        """See `EpochPlan.samples`."""
        start, end = self._bounds(batch)
        return max(0, min(end, self._arrangement.n) - start)

    def __iter__(self) -> Iterator[Integers]:
        """This rank's batches, in order; the same as `indices` for each, but cheaper."""
        size = self._size
        at_once = max(1, _AHEAD // size) * self._whole
        for start in range(self._start, self.end, at_once):
            samples = self._places(start, min(start + at_once, self.end))
            for first in range(0, len(samples), size):
                yield samples[first : first + size]


class ByTokens(EpochPlan):
    """Global batches of one batch for each rank, as the order made them.

    Args:
        grouped: The epoch's order and its batches.
        tail: What happens to a last global batch that has not one batch for each rank.
        world: The ranks, and which one this is.
        start: Samples consumed.
    """

    def __init__(self, grouped: Grouped, tail: Tail, world: World, start: int) -> None:
        assert grouped.bounds is not None
        assert grouped.groups is not None
        self._samples, self._bounds, self._groups = grouped.samples, grouped.bounds, grouped.groups
        self._rank, self._size = world.rank, world.size
        # a global batch that the cursor stands inside is no more: its first samples are consumed
        self._first = int(np.searchsorted(self._bounds[self._groups[:-1]], start))
        steps = len(self._groups) - 1 - self._first
        short = steps > 0 and self._groups[-1] - self._groups[-2] < world.size
        self._padded = bool(short and tail is Tail.PAD)
        if short and (tail is Tail.DROP or (tail is Tail.KEEP and self._rank >= self._groups[-1] - self._groups[-2])):
            steps -= 1
        self.batches = max(0, steps)

    def _spans(self, batch: int) -> list[tuple[int, int]]:
        """Begin and end of each rank's batch."""
        step = self._first + batch
        if not 0 <= step < len(self._groups) - 1:
            return []
        numbers = range(int(self._groups[step]), int(self._groups[step + 1]))
        spans = [(int(self._bounds[number]), int(self._bounds[number + 1])) for number in numbers]
        return _filled(spans, self._size) if self._padded and len(spans) < self._size else spans

    def indices(self, batch: int) -> Integers:
        """See `EpochPlan.indices`."""
        spans = self._spans(batch)
        start, end = spans[self._rank] if self._rank < len(spans) else (0, 0)
        return self._samples[start:end]

    def samples(self, batch: int) -> int:
        """See `EpochPlan.samples`."""
        return sum(end - start for start, end in set(self._spans(batch)))


def _filled(spans: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """As many batches as ranks: the largest ones are halved, and where all are single samples some come twice."""
    while len(spans) < size:
        largest = max(range(len(spans)), key=lambda number: spans[number][1] - spans[number][0])
        start, end = spans[largest]
        if end - start < 2:
            return [spans[number % len(spans)] for number in range(size)]
        middle = (start + end + 1) // 2
        spans[largest : largest + 1] = [(start, middle), (middle, end)]
    return spans


def plan_epoch(config: SamplerConfig, world: World, cursor: Cursor) -> EpochPlan:
    """The rest of an epoch on one rank.

    An order that is computed costs nothing here, and one that is written out (`Sorted`, `Bucketed`) is made here, once.

    Args:
        config: How the dataset is sampled.
        world: The ranks, and which one this is.
        cursor: Where the epoch goes on.

    Raises:
        ConfigError: The order does not fit the dataset.

    Example:
        >>> config = SamplerConfig(length=10, batch_size=4, tail=Tail.DROP)
        >>> plan_epoch(config, World.single(), Cursor(consumed=1)).batches
        2
    """
    order, length, start = config.order, config.length, cursor.consumed
    if not isinstance(order, Bucketed):
        return Dealt(order.arrange(length, config.seed, cursor.epoch), config, world, start)
    grouped = order.group(
        length, config.seed, cursor.epoch, cuts=cursor.cuts, ranks=world.size, batch_size=config.batch_size
    )
    if grouped.bounds is None:
        return Dealt(Table(grouped.samples), config, world, start)
    return ByTokens(grouped, config.tail, world, start)


def cut_epoch(config: SamplerConfig, world: World, cuts: tuple[Cut, ...], consumed: int) -> tuple[Cut, ...]:
    """What is kept of how an epoch was dealt up to some point, for a run that goes on from there in another way.

    Args:
        config: How the dataset was sampled.
        world: The ranks that it was dealt to.
        cuts: How it was dealt before that.
        consumed: Samples consumed at that point.

    Example:
        >>> cut_epoch(SamplerConfig(length=9, batch_size=2), World.single(), (), 4)
        ()
    """
    if not isinstance(config.order, Bucketed) or consumed == 0:
        return ()
    return (*cuts, config.order.cut(consumed, world.size, config.batch_size))


def same_dealing(one: Cut, other: Cut) -> bool:
    """Whether two stretches were dealt alike, so that they are one.

    Args:
        one: A stretch.
        other: Another.
    """
    return attrs.evolve(one, end=other.end) == other
