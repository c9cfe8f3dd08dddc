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
    check_order,
    whole,
)
from lumen.core.permute import Integers, permutation
from lumen.errors import ConfigError


def _indices(given: Any) -> Integers:
    allowed = "different sample numbers >= 0, or a truth value for each sample"
    array = np.asarray(given)
    if array.ndim == 1 and array.dtype.kind == "b":
        array = np.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ConfigError(
            "Subset(indices)", got=f"an array of {array.dtype}, shape {list(array.shape)}", allowed=allowed
        )
    indices: Integers = array.astype(np.int64)
    if indices.size and indices.min() < 0:
        raise ConfigError("Subset(indices)", got=int(indices.min()), allowed=allowed)
    if len(np.unique(indices)) != len(indices):
        raise ConfigError(
            "Subset(indices)", got="a sample twice", allowed=allowed, do="To see samples more often use Weighted."
        )
    indices.flags.writeable = False
    return indices


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
        picked = None if dataset is None else _Picked(dataset, self.indices)
        return attrs.evolve(self, order=self.order.bind(picked))

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        if self.indices.size and self.indices.max() >= length:
            raise ConfigError("Subset(indices)", got=int(self.indices.max()), allowed=f"sample numbers below {length}")
        return _Composed(self.order.arrange(len(self.indices), seed, epoch), Table(self.indices))


class _Picked:
    """Some samples of a dataset, as one."""

    def __init__(self, dataset: Any, indices: Integers) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]


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
        return attrs.evolve(self, order=self.order.bind(_Picked(dataset, samples)))
