"""Totals of logged values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.metrics import Reduce, Total, merge, merge_tables, result, total
from lumen.errors import DataError

numbers = st.floats(-1e6, 1e6)
weights = st.integers(0, 50).map(float)
pairs = st.lists(st.tuples(numbers, weights), max_size=20)


def of(reduce: Reduce, values: list[tuple[float, float]]) -> Total:
    return total(reduce, [value for value, _ in values], [weight for _, weight in values])


@given(st.sampled_from(list(Reduce)), pairs.filter(lambda p: sum(w for _, w in p) > 0))
def test_a_total_is_the_number_of_all_values_however_they_are_split(
    reduce: Reduce, values: list[tuple[float, float]]
) -> None:
    cut = len(values) // 2
    whole, joined = of(reduce, values), merge(of(reduce, values[:cut]), of(reduce, values[cut:]))
    assert joined.weight == whole.weight
    assert result(joined) == pytest.approx(result(whole), rel=1e-9, abs=1e-6)
    both = merge(of(reduce, values[cut:]), of(reduce, values[:cut]))
    assert result(both) == pytest.approx(result(joined), rel=1e-12, abs=1e-9)


def test_known_numbers() -> None:
    assert result(of(Reduce.MEAN, [(1.0, 1.0), (4.0, 2.0)])) == 3.0
    assert result(of(Reduce.SUM, [(1.0, 1.0), (4.0, 2.0)])) == 5.0
    assert result(of(Reduce.MIN, [(1.0, 1.0), (4.0, 2.0)])) == 1.0
    assert result(of(Reduce.MAX, [(1.0, 1.0), (4.0, 2.0)])) == 4.0
    assert math.isnan(result(of(Reduce.MEAN, [])))


def test_sums_lose_nothing_to_the_order_of_batches() -> None:
    values = [(1e16, 1.0), (1.0, 1.0), (-1e16, 1.0), (1.0, 1.0)]
    assert result(of(Reduce.SUM, values)) == 2.0


@pytest.mark.parametrize("reduce", list(Reduce))
def test_nan_and_infinity_show(reduce: Reduce) -> None:
    assert math.isnan(result(of(reduce, [(1.0, 1.0), (math.nan, 1.0), (2.0, 1.0)])))
    assert math.isnan(result(merge(of(reduce, [(math.nan, 1.0)]), of(reduce, [(2.0, 1.0)]))))
    assert not math.isfinite(
        result(of(reduce, [(math.inf if reduce is not Reduce.MIN else -math.inf, 1.0), (1.0, 1.0)]))
    )


def test_ranks_that_log_other_names_or_reductions_are_named() -> None:
    one = Total(Reduce.MEAN, 1.0, 1.0)
    with pytest.raises(DataError, match=r"'b'.*rank 1 but not on rank 0"):
        merge_tables([{"a": one}, {"a": one, "b": one}])
    with pytest.raises(DataError, match=r"'b'.*rank 0 but not on rank 2"):
        merge_tables([{"b": one}, {"b": one}, {}])
    with pytest.raises(DataError, match="reduce_fx='max' on rank 1"):
        merge_tables([{"a": one}, {"a": Total(Reduce.MAX, 1.0, 1.0)}])
    assert merge_tables([{"a": one}, {}], idle=[False, True]) == {"a": one}
