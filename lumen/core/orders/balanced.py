"""ClassBalanced: as many samples of each class."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import Arrangement, Given, Identity, Order, bound, check_count
from lumen.core.orders.keys import Meaning, bind_values, given_field
from lumen.core.orders.mixed import endless
from lumen.core.orders.mixture import Pattern, make_parts
from lumen.core.orders.subset import Subset


@attrs.frozen
class ClassBalanced(Order):
    """As many samples of each class, however rare it is; in a class each sample once before any comes again.

    In an epoch the numbers of two classes differ by two at most, and over several epochs still.

    Args:
        labels: The class of each sample, a whole number or a text: an array, a function of a sample, or a column.
        num_samples: Samples of an epoch; None: as many as the dataset has.

    Raises:
        ConfigError: The labels are none of these.

    Example:
        >>> drawn = ClassBalanced([0, 0, 0, 1]).arrange(4, seed=0, epoch=0).at(np.arange(4))
        >>> int((drawn == 3).sum())
        2
    """

    labels: Given = given_field("ClassBalanced(labels)", Meaning.LABEL)
    num_samples: int | None = None

    def __attrs_post_init__(self) -> None:
        check_count(self.num_samples, "ClassBalanced(num_samples)", 1, optional=True)

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`."""
        return bind_values(self, dataset, "labels", Meaning.LABEL)

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        labels = bound(self.labels, "ClassBalanced(labels)", length)
        if not length:
            return Identity(0)
        _, of = np.unique(labels, return_inverse=True)
        members = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1])
        orders = [Subset(samples) for samples in members]
        parts = make_parts(orders, [length] * len(orders), seed, offset=False)
        return endless(parts, Pattern((1,) * len(parts), seed), self.num_samples or length, epoch)
