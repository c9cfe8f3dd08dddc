"""Mixed and Concatenated: orders over several datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import Arrangement, Order, Shuffled, check_count, check_order
from lumen.core.orders.keys import Picked
from lumen.core.orders.mixture import Part, Pattern, make_parts, quotas, taken
from lumen.core.permute import Integers
from lumen.errors import ConfigError, did_you_mean

STOPS = ("first", "last", "never")


def _tuple(given: Any) -> Any:
    return (
        tuple(np.asarray(given).tolist())
        if isinstance(given, np.ndarray)
        else tuple(given)
        if isinstance(given, list)
        else given
    )


def _floats(given: Any) -> Any:
    given = _tuple(given)
    return tuple(float(one) if _is_positive(one) else one for one in given) if isinstance(given, tuple) else given


@attrs.frozen
class _Parted(Order):
    """An order over several datasets that lie one behind the other.

    Args:
        sizes: Samples of each; None: those of the `paddle.io.ConcatDataset` that the order is used with.
        orders: The order in each; None: shuffled.
    """

    sizes: tuple[int, ...] | None = attrs.field(default=None, converter=_tuple, kw_only=True)
    orders: tuple[Order, ...] | None = attrs.field(default=None, converter=_tuple, kw_only=True)

    def __attrs_post_init__(self) -> None:
        name = type(self).__name__
        for field in ("sizes", "orders"):
            given = getattr(self, field)
            if given is not None and not (isinstance(given, tuple) and given):
                raise ConfigError(f"{name}({field})", got=given, allowed="a list with one entry for each dataset")
        for size in self.sizes or ():
            check_count(size, f"{name}(sizes)", 1)
        for order in self.orders or ():
            check_order(order, f"{name}(orders)")

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`; the sizes are those of the parts of a `ConcatDataset`, or of anything with `datasets`."""
        datasets = getattr(dataset, "datasets", None)
        sizes = self.sizes if self.sizes is not None or datasets is None else tuple(len(one) for one in datasets)
        if self.orders is None:
            return attrs.evolve(self, sizes=sizes)
        if datasets is None and sizes is not None and dataset is not None:
            ends = np.cumsum(sizes)
            datasets = [Picked(dataset, np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
        if datasets is None:
            datasets = [None] * len(self.orders)
        if len(datasets) != len(self.orders):
            _wrong_number(f"{type(self).__name__}(orders)", len(self.orders), len(datasets))
        orders = [order.bind(one) for order, one in zip(self.orders, datasets, strict=True)]
        return attrs.evolve(self, sizes=sizes, orders=orders)

    def parts(self, length: int, seed: int) -> tuple[Part, ...]:
        """The datasets with their orders.

        Args:
            length: Samples of all together.
            seed: The run's seed.

        Raises:
            ConfigError: The sizes do not add up, or there is not one order for each.
        """
        name = type(self).__name__
        if self.sizes is None:
            raise ConfigError(
                f"{name}(sizes)", got=None, allowed="the samples of each dataset", do="Use a paddle.io.ConcatDataset."
            )
        if sum(self.sizes) != length:
            raise ConfigError(
                f"{name}(sizes)", got=list(self.sizes), allowed=f"sizes that add up to the dataset's {length} samples"
            )
        orders = self.orders if self.orders is not None else (Shuffled(),) * len(self.sizes)
        if len(orders) != len(self.sizes):
            _wrong_number(f"{name}(orders)", len(orders), len(self.sizes))
        return make_parts(orders, self.sizes, seed, offset=True)


def _wrong_number(name: str, got: int, allowed: int) -> None:
    raise ConfigError(name, got=f"{got} entries", allowed=f"one for each of {allowed} datasets")


@attrs.frozen
class Concatenated(_Parted):
    """Several datasets one after the other, each in an order of its own.

    Args:
        sizes: Samples of each; None: those of the `paddle.io.ConcatDataset` that the order is used with.
        orders: The order in each; None: shuffled.

    Raises:
        ConfigError: A size or an order is none.

    Example:
        >>> order = Concatenated(sizes=[2, 3]).arrange(5, seed=0, epoch=0)
        >>> [sorted(order.at(np.arange(*span)).tolist()) for span in ((0, 2), (2, 5))]
        [[0, 1], [2, 3, 4]]
    """

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        parts = self.parts(length, seed)
        ends = np.cumsum([part.lap(epoch).n for part in parts])
        return _Behind(int(ends[-1]), parts, ends, epoch)


@attrs.frozen(eq=False)
class _Behind:
    n: int
    parts: tuple[Part, ...]
    ends: Integers
    epoch: int

    def at(self, positions: Integers) -> Integers:
        which = np.searchsorted(self.ends, positions, side="right")
        samples = np.empty_like(positions)
        for number in np.unique(which):
            part, here = self.parts[number], which == number
            order = part.lap(self.epoch)
            samples[here] = order.at(positions[here] - (self.ends[number] - order.n)) + part.offset
        return samples


@attrs.frozen
class Mixed(_Parted):
    """Several datasets mixed by weight: every stretch of an epoch holds all of them, none runs dry early.

    Each dataset has a place of its own, from which it goes on. Weights are met exactly where they are decimals (0.7
    and 0.3: seven and three of every ten samples), else to a thousandth.

    Args:
        weights: The share of each dataset, > 0, in any unit; None: by their sizes and the temperature.
        temperature: > 0; the shares are size ** (1 / temperature): 1 takes them by size, a large one evenly.
        stop: When an epoch ends. "first": before a sample of any dataset would come twice; larger datasets go on in the
            next epoch about where they stopped. "last": when all have been seen whole; smaller ones start again.
            "never": after `num_samples`; those that are through start again, and the next epoch goes on where this one
            stopped.
        num_samples: Samples of an epoch, for stop="never"; None: as many as all datasets have.
        sizes: Samples of each; None: those of the `paddle.io.ConcatDataset` that the order is used with.
        orders: The order in each; None: shuffled.

    Raises:
        ConfigError: A weight, a size or an order is none, or the rule is not known.

    Example:
        >>> mixed = Mixed([0.75, 0.25], sizes=[300, 700]).arrange(1000, seed=0, epoch=0)
        >>> mixed.n, int((mixed.at(np.arange(200)) < 300).sum())
        (400, 150)
    """

    weights: tuple[float, ...] | None = attrs.field(default=None, converter=_floats)
    temperature: float | None = attrs.field(default=None, kw_only=True)
    stop: str = attrs.field(default="first", kw_only=True)
    num_samples: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        _Parted.__attrs_post_init__(self)
        if self.weights is not None:
            _check_weights(self.weights)
            if self.temperature is not None:
                raise ConfigError("Mixed(weights) with temperature", got="both", allowed="one of them")
        if self.temperature is not None and not _is_positive(self.temperature):
            raise ConfigError("Mixed(temperature)", got=self.temperature, allowed="a number > 0")
        if self.stop not in STOPS:
            raise ConfigError("Mixed(stop)", got=self.stop, do=did_you_mean(str(self.stop), STOPS))
        check_count(self.num_samples, "Mixed(num_samples)", 1, optional=True)
        if self.num_samples is not None and self.stop != "never":
            raise ConfigError("Mixed(num_samples)", got=self.num_samples, allowed='None, or with stop="never"')

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """The order of an epoch; see `Order.arrange`."""
        parts = self.parts(length, seed)
        if any(isinstance(part.order, Mixed) for part in parts):
            raise ConfigError(
                "Mixed(orders)", got="a Mixed inside another", do="Give the weights of all datasets to one Mixed."
            )
        if any(part.n == 0 for part in parts):
            raise ConfigError(
                "Mixed(orders)", got="a dataset of which an epoch takes nothing", allowed="at least 1 sample"
            )
        if self.weights is not None and len(self.weights) != len(parts):
            _wrong_number("Mixed(weights)", len(self.weights), len(parts))
        pattern = Pattern(quotas(self.weights or _shares([part.n for part in parts], self.temperature)), seed)
        if self.stop == "never":
            return endless(parts, pattern, self.num_samples or sum(part.n for part in parts), epoch)
        return _until_first(parts, pattern, epoch) if self.stop == "first" else _until_last(parts, pattern, epoch)


def _shares(sizes: Sequence[int], temperature: float | None) -> list[float]:
    """Size ** (1 / temperature), scaled so that it is in range for any temperature."""
    logs = np.log(np.asarray(sizes, dtype=np.float64))
    with np.errstate(over="ignore", under="ignore"):
        shares = np.exp((logs - logs.max()) / (temperature or 1))
    return np.maximum(shares, 1e-300).tolist()  # type: ignore[no-any-return]


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and bool(0 < value < float("inf"))


def _check_weights(weights: Any) -> None:
    if not isinstance(weights, tuple) or not weights or not all(map(_is_positive, weights)):
        raise ConfigError("Mixed(weights)", got=weights, allowed="a list with a number > 0 for each dataset")


@attrs.frozen(eq=False)
class _Mixing:
    """One epoch of a mixture.

    Args:
        n: Samples of the epoch.
        parts: What is mixed.
        pattern: Which part each place belongs to.
        start: Place of the epoch's first sample in the pattern.
        turns: The turn of each part's first sample.
        laps: The pass through each part that the turns are counted in.
        again: A part that is through starts again in a new order; else in the same.
    """

    n: int
    parts: tuple[Part, ...]
    pattern: Pattern
    start: int
    turns: Integers
    laps: Sequence[int]
    again: bool = True

    def at(self, positions: Integers) -> Integers:
        which, turns = self.pattern.at(positions + self.start)
        return taken(self.parts, which, turns + self.turns[which], self.laps, again=self.again)


def endless(parts: tuple[Part, ...], pattern: Pattern, n: int, epoch: int) -> Arrangement:
    """An epoch of n samples of one mixture that never ends.

    Args:
        parts: What is mixed.
        pattern: Which part each place belongs to.
        n: Samples of an epoch.
        epoch: The epoch.
    """
    return _Mixing(n, parts, pattern, epoch * n, np.zeros(len(parts), np.int64), [0] * len(parts))


def _until_first(parts: tuple[Part, ...], pattern: Pattern, epoch: int) -> Arrangement:
    """Each epoch has blocks of its own, and goes on in each part about where the one before it stopped.

    Exactly where would need the lengths of all epochs before: less than a block is passed over. Where a pass ends
    inside an epoch, the epoch goes on with that pass's own first samples: so none comes twice in it.
    """
    sizes, counts = np.array([part.n for part in parts]), np.array(pattern.counts)
    full = int((sizes // counts).min())
    first = epoch * (full + 1)  # block
    last = np.arange((first + full) * pattern.block, (first + full + 1) * pattern.block)
    which, turns = pattern.at(last)
    inside = int(np.flatnonzero(turns - first * counts[which] >= sizes[which])[0])
    used = np.minimum(sizes, (full + 1) * counts)  # at most, by any epoch
    per_lap = -(-sizes // used)
    begin = epoch % per_lap * used - first * counts
    n = full * pattern.block + inside
    return _Mixing(n, parts, pattern, first * pattern.block, begin, (epoch // per_lap).tolist(), again=False)


def _until_last(parts: tuple[Part, ...], pattern: Pattern, epoch: int) -> Arrangement:
    sizes, counts = np.array([part.n for part in parts]), np.array(pattern.counts)
    final = int(((sizes - 1) // counts).max())
    which, turns = pattern.at(np.arange(final * pattern.block, (final + 1) * pattern.block))
    n = final * pattern.block + int(np.flatnonzero(turns == sizes[which] - 1)[-1]) + 1
    laps = -(-(final + 1) * counts // sizes)
    return _Mixing(n, parts, pattern, 0, np.zeros(len(parts), np.int64), (epoch * laps).tolist())
