"""Mixtures: the pattern in which samples of several parts follow each other, any slice of it at once.

A pattern is cut into blocks. In each block every part has its quota of places, in an order of the block's own; so how
many samples of a part came before any place follows from the place, and nothing needs to be counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from lumen.core.orders.base import Arrangement, Order, derived_seed
from lumen.core.permute import Integers, hashes

_LONGEST = 1000  # places in a block: weights are met to a thousandth, or exactly where they are decimals
_BLOCKS = 0x626C6F63  # keeps the blocks' keys apart from other uses of the seed


def quotas(weights: Sequence[float]) -> tuple[int, ...]:
    """How many places of a block each part gets: the shortest block that meets the weights exactly, else a long one.

    Args:
        weights: Of each part, > 0, in any unit.

    Example:
        >>> quotas([0.7, 0.2, 0.1])
        (7, 2, 1)
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = shares / shares.max()
    shares = shares / shares.sum()
    longest = max(len(shares), _LONGEST)
    for places in range(len(shares), longest + 1):
        exact = shares * places
        if np.abs(exact - np.rint(exact)).max() < 1e-9 and exact.min() > 0.5:
            return tuple(int(count) for count in np.rint(exact))
    counts = np.maximum(1, np.floor(shares * longest)).astype(np.int64)
    rest = np.argsort(-(shares * longest - counts), kind="stable")
    counts[rest[: max(0, longest - int(counts.sum()))]] += 1
    return tuple(int(count) for count in counts)


@attrs.frozen
class Pattern:
    """Which part each place belongs to, and which of the part's samples in turn it is.

    Args:
        counts: Places of each part in a block, > 0.
        seed: Of the order inside the blocks.

    Example:
        >>> parts, turns = Pattern((2, 1), seed=0).at(np.arange(6))
        >>> [sorted(turns[parts == part].tolist()) for part in (0, 1)]
        [[0, 1, 2, 3], [0, 1]]
    """

    counts: tuple[int, ...]
    seed: int

    @property
    def block(self) -> int:
        """Places in a block."""
        return sum(self.counts)

    def at(self, places: Integers) -> tuple[Integers, Integers]:
        """The part and the turn of each place.

        Args:
            places: int64 >= 0, shape [k].

        Returns:
            Two int64 arrays of shape [k].
        """
        blocks, slots = np.divmod(places, self.block)
        some, which = np.unique(blocks, return_inverse=True)
        cells = some[:, None] * self.block + np.arange(self.block, dtype=np.int64)
        order = np.argsort(hashes(cells, self.seed, _BLOCKS), axis=1, kind="stable")
        counts = np.asarray(self.counts, dtype=np.int64)
        parts = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        firsts = np.cumsum(counts) - counts
        rows = parts[order]
        # a part's turns follow each other inside a block too: the k-th of its places there has the k-th turn
        turns = np.empty_like(rows)
        sorted_turns = np.broadcast_to(np.arange(self.block, dtype=np.int64) - firsts[parts], rows.shape)
        np.put_along_axis(turns, np.argsort(rows, axis=1, kind="stable"), sorted_turns, axis=1)
        row = which.reshape(-1)
        part = rows[row, slots]
        return part, blocks * counts[part] + turns[row, slots]


@attrs.frozen(eq=False)
class Part:
    """One of several sets of samples.

    Args:
        order: The order in it.
        length: Samples of the dataset that the order is over.
        offset: What is added to its sample numbers.
        seed: Of its order.
        n: Samples of one pass through it.
    """

    order: Order
    length: int
    offset: int
    seed: int
    n: int
    _laps: dict[int, Arrangement] = attrs.field(factory=dict, init=False)

    def lap(self, number: int) -> Arrangement:
        """Its order on one pass through it.

        Args:
            number: Of the pass, >= 0.
        """
        if number not in self._laps:
            if len(self._laps) > 1:  # a slice touches two at most; a written-out order is as large as its part
                self._laps.clear()
            self._laps[number] = self.order.arrange(self.length, self.seed, number)
        return self._laps[number]


def make_parts(orders: Sequence[Order], lengths: Sequence[int], seed: int, *, offset: bool) -> tuple[Part, ...]:
    """Parts, each with a seed of its own.

    Args:
        orders: The order in each.
        lengths: Samples of the dataset that each is over.
        seed: The run's seed.
        offset: Whether the parts lie one behind the other; else all are over the same dataset.
    """
    starts = [0, *np.cumsum(lengths).tolist()] if offset else [0] * len(lengths)
    parts = []
    for number, (order, length) in enumerate(zip(orders, lengths, strict=True)):
        own = derived_seed(seed, number)
        parts.append(Part(order, int(length), int(starts[number]), own, order.arrange(int(length), own, 0).n))
    return tuple(parts)


def taken(
    parts: Sequence[Part], which: Integers, turns: Integers, first_laps: Sequence[int], *, again: bool = True
) -> Integers:
    """The samples of some turns of some parts; a part that is through starts again.

    Args:
        parts: The parts.
        which: The part of each place, int64, shape [k].
        turns: Which of its samples in turn, int64, shape [k].
        first_laps: The pass of each part that turn 0 belongs to.
        again: It starts again in a new order; else in the same.
    """
    samples = np.empty_like(turns)
    for number in np.unique(which):
        part = parts[number]
        here = which == number
        laps, places = np.divmod(turns[here], part.n)
        got = np.empty_like(places)
        for lap in np.unique(laps):
            now = laps == lap
            got[now] = part.lap(int(lap) * again + first_laps[number]).at(places[now])
        samples[here] = got + part.offset
    return samples
