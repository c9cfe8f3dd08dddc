"""Subset and Fold: some of the samples."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import (
    Arrangement,
    Order,
    Sequential,
    Shuffled,
    Table,
    check_count,
    check_flag,
    check_order,
    whole,
)
from lumen.core.orders.keys import Picked
from lumen.core.permute import Integers, permutation
from lumen.errors import ConfigError

_ALLOWED = "different sample numbers >= 0, or a truth value for each sample"


def _indices(given: Any) -> Any:
    """Sample numbers, or truth values, as they were given."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ConfigError("Subset(indices)", got=str(error), allowed=_ALLOWED) from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise ConfigError(
            "Subset(indices)", got=f"an array of {array.dtype}, shape {list(array.shape)}", allowed=_ALLOWED
        )
    array = array.astype(bool if array.dtype.kind == "b" else np.int64)
    if array.dtype.kind != "b" and array.size and array.min() < 0:
        raise ConfigError("Subset(indices)", got=int(array.min()), allowed=_ALLOWED)
    if array.dtype.kind != "b" and len(np.unique(array)) != len(array):
        raise ConfigError(
            "Subset(indices)", got="a sample twice", allowed=_ALLOWED, do="To see samples more often use Weighted."
        )
    array.flags.writeable = False
    return array


@attrs.frozen
class Subset(Order):
    """Some samples of the dataset.

    Args:
        indices: Which: their numbers, or a truth value for each sample.
        order: The order among them.

    Raises:
        ConfigError: A number is negative, not in the dataset, or there twice.

    Example:
        >>> whole(Subset([4, 2], order=Sequential()).arrange(5, seed=0, epoch=0)).tolist()
        [4, 2]
    """

    indices: Any = attrs.field(converter=_indices, eq=attrs.cmp_using(eq=np.array_equal))
    order: Order = attrs.field(factory=Shuffled)

    def __attrs_post_init__(self) -> None:
        check_order(self.order, "Subset(order)")

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`; the order below sees the subset only."""
        picked = None if dataset is None else Picked(dataset, self._samples(len(dataset)))
        return attrs.evolve(self, order=self.order.bind(picked))

    def _samples(self, length: int) -> Integers:
        if self.indices.dtype.kind == "b":
            if len(self.indices) != length:
                raise ConfigError(
                    "Subset(indices)",
                    got=f"{len(self.indices)} truth values",
                    allowed=f"one for each of {length} samples",
                )
            return np.flatnonzero(self.indices).astype(np.int64)
        if self.indices.size and self.indices.max() >= length:
            raise ConfigError("Subset(indices)", got=int(self.indices.max()), allowed=f"sample numbers below {length}")
        samples: Integers = self.indices
        return samples

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        samples = self._samples(length)
        return _Composed(self.order.arrange(len(samples), seed, epoch), Table(samples))


@attrs.frozen
class _FoldTable:
    """The samples in one of k shuffled parts, or those in all others; computed where they are asked for."""

    length: int
    k: int
    fold: int
    train: bool
    seed: int

    @property
    def n(self) -> int:
        held_out = len(range(self.fold, self.length, self.k))
        return self.length - held_out if self.train else held_out

    def at(self, positions: Integers) -> Integers:
        if self.train:
            rounds, places = np.divmod(positions, self.k - 1)
            places = rounds * self.k + places + (places >= self.fold)
        else:
            places = positions * self.k + self.fold
        return permutation(self.length, self.seed, self.k).at(places)


@attrs.frozen(eq=False)
class _Composed:
    """An order of an order."""

    outer: Arrangement
    inner: Arrangement

    @property
    def n(self) -> int:
        return self.outer.n

    def at(self, positions: Integers) -> Integers:
        return self.inner.at(self.outer.at(positions))


@attrs.frozen(kw_only=True)
class Fold(Order):
    """The training samples of one fold of a k-fold cross-validation, or those held out.

    The dataset is cut into k parts of nearly equal size by a shuffle that depends on `seed` only: a loader for training
    and one for validation never share a sample, in any epoch and on any rank.

    Args:
        k: Number of parts, >= 2.
        fold: The part that is held out, from 0 to k - 1.
        train: All samples but that part; else that part.
        seed: Of the cut, >= 0.
        order: The order among them; None: shuffled for training, else sequential.

    Raises:
        ConfigError: A number is out of range.

    Example:
        >>> parts = [whole(Fold(k=3, fold=i, train=False).arrange(10, seed=0, epoch=0)).tolist() for i in range(3)]
        >>> sorted(sum(parts, [])), [len(part) for part in parts]
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 3, 3])
    """

    k: int
    fold: int
    train: bool = True
    seed: int = 0
    order: Order | None = None

    def __attrs_post_init__(self) -> None:
        check_count(self.k, "Fold(k)", 2)
        check_flag(self.train, "Fold(train)")
        check_count(self.fold, "Fold(fold)", 0)
        check_count(self.seed, "Fold(seed)", 0)
        if self.fold >= self.k:
            raise ConfigError("Fold(fold)", got=self.fold, allowed=f"from 0 to {self.k - 1}, for k={self.k}")
        if self.order is not None:
            check_order(self.order, "Fold(order)")

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        inner = _FoldTable(length, self.k, self.fold, self.train, self.seed)
        return _Composed(self._order.arrange(inner.n, seed, epoch), inner)

    @property
    def _order(self) -> Order:
        return self.order or (Shuffled() if self.train else Sequential())

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`; the order below sees the fold only."""
        if self.order is None or dataset is None:
            return self
        samples = whole(_FoldTable(len(dataset), self.k, self.fold, self.train, self.seed))
        return attrs.evolve(self, order=self.order.bind(Picked(dataset, samples)))
