"""Weighted: samples drawn by weight, with and without replacement."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import Arrangement, Given, Identity, Order, Table, Values, bound, check_count, check_flag
from lumen.core.orders.keys import Meaning, bind_values, given_field
from lumen.core.permute import Integers, hashes
from lumen.errors import ConfigError

_WEIGHTED = 0x77656967  # keeps the draws apart from other uses of (seed, epoch)


@attrs.frozen
class Weighted(Order):
    """Samples drawn by weight.

    Args:
        weights: The weight of each sample, >= 0, in any unit: an array, a function of a sample, or a column.
        num_samples: How many an epoch draws; None: as many as the dataset has, without replacement as many as have a
            weight.
        replacement: Whether a sample may be drawn twice in an epoch.

    Raises:
        ConfigError: A weight is negative, all are 0, or too few samples have one.

    Example:
        >>> set(Weighted([0, 1, 1]).arrange(3, seed=0, epoch=0).at(np.arange(3)).tolist()) <= {1, 2}
        True
    """

    weights: Given = given_field("Weighted(weights)", Meaning.NUMBER)
    num_samples: int | None = None
    replacement: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_count(self.num_samples, "Weighted(num_samples)", 1, optional=True)
        check_flag(self.replacement, "Weighted(replacement)")

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`."""
        return bind_values(self, dataset, "weights", Meaning.NUMBER)

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        weights = bound(self.weights, "Weighted(weights)", length)
        if not length:
            return Identity(0)
        if (weights < 0).any():
            wrong = int(np.flatnonzero(weights < 0)[0])
            raise ConfigError("Weighted(weights)", got=f"{weights[wrong]} for sample {wrong}", allowed="weights >= 0")
        some = int((weights > 0).sum())
        if not some:
            raise ConfigError("Weighted(weights)", got="all 0", allowed="at least one weight > 0")
        if self.replacement:
            return _Drawn(self.num_samples or length, np.cumsum(weights / weights.max()), seed, epoch)
        count = some if self.num_samples is None else self.num_samples
        if count > some:
            raise ConfigError(
                "Weighted(num_samples)",
                got=count,
                allowed=f"at most the {some} samples with a weight > 0, without replacement",
                do="Use replacement=True, or draw fewer.",
            )
        return Table(_drawn_once(weights, count, seed, epoch))


def _uniform(places: Integers, *key: int) -> Values:
    """A number in [0, 1) for each place, 53 bits of it random."""
    uniform: Values = (hashes(places, *key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def _drawn_once(weights: Values, count: int, seed: int, epoch: int) -> Integers:
    """Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006: the least of -log(u) / w.

    By the logarithm of that, which neither very small nor very large weights take out of range.
    """
    some = np.flatnonzero(weights > 0).astype(np.int64)
    with np.errstate(divide="ignore"):  # a random number of 0 comes first
        waits = np.log(-np.log1p(-_uniform(some, seed, epoch, _WEIGHTED))) - np.log(weights[some])
    return some[np.argsort(waits, kind="stable")[:count]]


@attrs.frozen(eq=False)
class _Drawn:
    """Independent draws: the inverse of the weights' distribution at a random number for each position."""

    n: int
    sums: Values
    seed: int
    epoch: int

    def at(self, positions: Integers) -> Integers:
        points = _uniform(positions, self.seed, self.epoch, _WEIGHTED) * self.sums[-1]
        drawn = np.searchsorted(self.sums, points, side="right")
        last = int(np.searchsorted(self.sums, self.sums[-1], side="left"))  # rounding may reach the total itself
        samples: Integers = np.minimum(drawn, last).astype(np.int64)
        return samples
