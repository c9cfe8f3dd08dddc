"""Accumulators of logged values: sums and weights that merge over batches and ranks."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence

import attrs

from lumen.errors import DataError


class Reduce(enum.Enum):
    """How the values of one name become one number."""

    MEAN = "mean"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@attrs.frozen
class Total:
    """What is known of a logged name so far.

    Args:
        reduce: How values are joined.
        value: Sum of value times weight for a mean, the sum, the smallest or the largest value.
        weight: Sum of the weights, samples say, for a mean; else the number of values. 0 means that nothing was logged.

    Example:
        >>> a = total(Reduce.MEAN, [1.0, 4.0], [2.0, 1.0])
        >>> result(merge(a, total(Reduce.MEAN, [0.0], [3.0])))
        1.0
    """

    reduce: Reduce
    value: float
    weight: float


def total(reduce: Reduce, values: Sequence[float], weights: Sequence[float]) -> Total:
    """The total of some values.

    Sums are exact to the last bit of a float64 (`math.fsum`), so that the order of batches does not matter.

    Args:
        reduce: How values are joined.
        values: The values, one a batch.
        weights: Their weights, >= 0, as many; only a mean uses them.
    """
    if not values:
        return Total(reduce, 0.0, 0.0)
    # a sum or an extreme of values that weigh nothing is still one
    weight = math.fsum(weights) if reduce is Reduce.MEAN else float(len(values))
    if reduce is Reduce.MEAN:
        return Total(reduce, _sum([v * w for v, w in zip(values, weights, strict=True)]), weight)
    if reduce is Reduce.SUM:
        return Total(reduce, _sum(values), weight)
    if any(math.isnan(value) for value in values):
        return Total(reduce, math.nan, weight)
    return Total(reduce, (min if reduce is Reduce.MIN else max)(values), weight)


def _sum(values: Sequence[float]) -> float:
    """fsum, but with the infinities and NaNs of ordinary addition, which fsum refuses."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


def merge(first: Total, second: Total) -> Total:
    """Both totals as one; commutative, and associative up to rounding."""
    if first.weight == 0 or second.weight == 0:
        return second if first.weight == 0 else first
    if first.reduce in (Reduce.MEAN, Reduce.SUM):
        return Total(first.reduce, first.value + second.value, first.weight + second.weight)
    joined = total(first.reduce, [first.value, second.value], [first.weight, second.weight])
    return Total(first.reduce, joined.value, first.weight + second.weight)


def result(of: Total) -> float:
    """The one number; NaN where nothing was logged."""
    if of.weight == 0:
        return math.nan
    return of.value / of.weight if of.reduce is Reduce.MEAN else of.value


Table = dict[str, Total]
"""The totals of one rank, by name."""


def merge_tables(tables: Sequence[Mapping[str, Total]], *, idle: Sequence[bool] = ()) -> Table:
    """The totals over all ranks.

    Args:
        tables: One a rank, in the order of the ranks.
        idle: For each rank, whether it had no batch at all, so that its table may lack names.

    Raises:
        DataError: Ranks logged different names, or one name with different reductions.

    Example:
        >>> one, two = Total(Reduce.SUM, 1.0, 1.0), Total(Reduce.SUM, 2.0, 1.0)
        >>> merge_tables([{"n": one}, {"n": two}])["n"].value
        3.0
    """
    busy = [rank for rank in range(len(tables)) if not (idle and idle[rank])]
    merged: Table = {}
    for rank in busy:
        missing = set(tables[busy[0]]).symmetric_difference(tables[rank])
        if missing:
            holder = busy[0] if missing <= set(tables[busy[0]]) else rank
            other = rank if holder == busy[0] else busy[0]
            raise DataError(
                f"self.log({min(missing)!r})",
                got=f"logged on rank {holder} but not on rank {other}",
                allowed="the same names on every rank",
                do="Log each name on all ranks, whatever the rank or the data.",
            )
    for rank, table in enumerate(tables):
        for name, of in table.items():
            held = merged.get(name)
            if held is not None and held.reduce is not of.reduce:
                raise DataError(
                    f"self.log({name!r})",
                    got=f"reduce_fx={of.reduce.value!r} on rank {rank}, {held.reduce.value!r} on others",
                    allowed="one reduction for a name",
                )
            merged[name] = of if held is None else merge(held, of)
    return merged
