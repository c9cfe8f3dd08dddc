"""Order: what all orders have in common, and the two plain ones."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from lumen.core.permute import Integers, permutation
from lumen.errors import ConfigError


class Arrangement(Protocol):
    """One epoch's order, any part of it on demand."""

    @property
    def n(self) -> int:
        """Number of positions in the epoch."""

    def at(self, positions: Integers) -> Integers:
        """The samples at some positions, each in range(n); int64, the same shape [k]."""


@attrs.frozen
class Order(abc.ABC):
    """Which samples an epoch takes, and in what order: a value, whatever the ranks and the batch size."""

    @abc.abstractmethod
    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch.

        Args:
            length: Samples in the dataset, >= 0.
            seed: The run's seed, >= 0.
            epoch: The epoch, >= 0.

        Raises:
            ConfigError: The order does not fit a dataset of this length.
        """

    def bind(self, dataset: Any) -> Order:
        """The same order with what it needs of the dataset read from it: keys, weights, labels, sizes.

        Args:
            dataset: With `__getitem__` and `__len__`; None: nothing can be read.

        Raises:
            ConfigError: A function or a column of the dataset does not give what the order needs.
        """
        parts = {
            field.name: value.bind(dataset)
            for field in attrs.fields(type(self))
            if isinstance(value := getattr(self, field.name), Order)
        }
        return attrs.evolve(self, **parts) if parts else self

    @property
    def fingerprint(self) -> str:
        """A text that is equal for equal orders only; arrays are in it as digests."""
        fields = attrs.fields(type(self))
        parts = ", ".join(f"{field.name}={_fingerprint(getattr(self, field.name))}" for field in fields)
        return f"{type(self).__name__}({parts})"


def _fingerprint(value: Any) -> str:
    if isinstance(value, Order):
        return value.fingerprint
    if isinstance(value, np.ndarray):
        return hashlib.sha256(
            f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes()
        ).hexdigest()[:16]
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, tuple):
        return f"[{', '.join(map(_fingerprint, value))}]"
    return repr(value) if not callable(value) else getattr(value, "__qualname__", type(value).__name__)


@attrs.frozen
class Identity:
    """The dataset's own order."""

    n: int

    def at(self, positions: Integers) -> Integers:
        """The samples at some positions."""
        return positions


@attrs.frozen(eq=False)
class Table:
    """An order that is written out."""

    samples: Integers

    @property
    def n(self) -> int:
        """Number of positions."""
        return len(self.samples)

    def at(self, positions: Integers) -> Integers:
        """The samples at some positions."""
        taken: Integers = self.samples[positions]
        return taken


@attrs.frozen
class Sequential(Order):
    """Samples in the dataset's own order.

    Example:
        >>> Sequential().arrange(5, seed=0, epoch=0).at(np.array([3, 4])).tolist()
        [3, 4]
    """

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        return Identity(length)


@attrs.frozen
class Shuffled(Order):
    """All samples in an order of its own for each epoch, in no memory; see `lumen.core.permute`.

    Example:
        >>> sorted(Shuffled().arrange(5, seed=0, epoch=0).at(np.arange(5)).tolist())
        [0, 1, 2, 3, 4]
    """

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        return permutation(length, seed, epoch)


def whole(arrangement: Arrangement) -> Integers:
    """All samples of an epoch, in order.

    Args:
        arrangement: The epoch's order.
    """
    return arrangement.at(np.arange(arrangement.n, dtype=np.int64))


def derived_seed(seed: int, part: int) -> int:
    """The seed of one of several orders in one.

    Args:
        seed: The run's seed, >= 0.
        part: Number of the order, >= 0.
    """
    return int(np.random.SeedSequence((seed, part, _PARTS)).generate_state(1, np.uint64)[0])


_PARTS = 0x70617274  # keeps these seeds apart from the keys of (seed, epoch)

Values = NDArray[Any]
Given = Sequence[Any] | Values | Callable[[Any], Any] | str | int
"""What an order goes by: an array, a function of a sample, or a column of the dataset."""


def is_bound(given: Given) -> bool:
    """Whether values are there, and need not be read from a dataset.

    Args:
        given: What the user gave.
    """
    return not (callable(given) or isinstance(given, (str, int, np.integer)))


def bound(given: Given, name: str, length: int) -> Values:
    """The values of an order for a dataset of this length.

    Args:
        given: What the user gave, bound to a dataset if it was no array.
        name: The argument, for errors.
        length: Samples in the dataset.

    Raises:
        ConfigError: It is no array yet, or has not one value for each sample.
    """
    if not isinstance(given, np.ndarray):
        raise ConfigError(
            name, got=given, allowed="an array", do="Call order.bind(dataset) first: it reads the values."
        )
    if len(given) != length:
        raise ConfigError(name, got=f"{len(given)} values", allowed=f"one for each of {length} samples")
    return given


def check_count(value: object, name: str, least: int, *, optional: bool = False) -> None:
    """Refuses what is no whole number, too small, or far beyond what any machine holds.

    Args:
        value: What the user gave.
        name: The argument.
        least: The smallest that is allowed.
        optional: Whether None is allowed too.

    Raises:
        ConfigError: It is.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= _MOST:
        raise ConfigError(name, got=value, allowed=f"an int from {least} to 2**48" + (", or None" if optional else ""))


_MOST = 2**48  # products of two such numbers and a batch stay far from the end of 64 bits where they are computed


def check_flag(value: object, name: str) -> None:
    """Refuses what is no truth value.

    Args:
        value: What the user gave.
        name: The argument.

    Raises:
        ConfigError: It is.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(name, got=value, allowed="True or False")


def check_order(value: object, name: str) -> None:
    """Refuses what is no order.

    Args:
        value: What the user gave.
        name: The argument.

    Raises:
        ConfigError: It is.
    """
    if not isinstance(value, Order):
        raise ConfigError(name, got=value, allowed="an order such as lumen.data.Shuffled()")
