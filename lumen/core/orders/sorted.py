"""Sorted: samples by the size of a key."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import Arrangement, Given, Order, Sequential, Table, bound, check_flag, check_order, whole
from lumen.core.orders.keys import Meaning, bind_values, given_field


@attrs.frozen
class Sorted(Order):
    """Samples by the size of a key; of equal keys in the order below it.

    Args:
        by: The key of each sample: an array, a function of a sample, or a column of the dataset (of a text or an array
            its length).
        descending: Largest first.
        of: Which samples, and the order among equal keys.

    Raises:
        ConfigError: The key is none of these.

    Example:
        >>> whole(Sorted([3, 1, 2, 1]).arrange(4, seed=0, epoch=0)).tolist()
        [1, 3, 2, 0]
    """

    by: Given = given_field("Sorted(by)", Meaning.SIZE)
    descending: bool = attrs.field(default=False, kw_only=True)
    of: Order = attrs.field(factory=Sequential, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_flag(self.descending, "Sorted(descending)")
        check_order(self.of, "Sorted(of)")

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`."""
        return bind_values(self, dataset, "by", Meaning.SIZE)

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        samples = whole(self.of.arrange(length, seed, epoch))
        keys = bound(self.by, "Sorted(by)", length)[samples]
        if not self.descending:
            return Table(samples[np.argsort(keys, kind="stable")])
        backwards = np.argsort(keys[::-1], kind="stable")[::-1]  # so that equal keys stay in order
        return Table(samples[len(keys) - 1 - backwards])
