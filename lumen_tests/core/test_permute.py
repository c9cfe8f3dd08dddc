"""The epoch order: a bijection, sliceable anywhere, and a shuffle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lumen.core.permute import LARGEST, Permutation, permutation
from lumen.errors import ConfigError


@settings(max_examples=150)
@given(st.integers(0, 5000), st.integers(0, 2**64), st.integers(0, 1000))
def test_an_order_is_a_bijection_of_its_range(n: int, seed: int, epoch: int) -> None:
    whole = permutation(n, seed, epoch)[:]
    assert whole.dtype == np.int64
    np.testing.assert_array_equal(np.sort(whole), np.arange(n))


@settings(max_examples=150)
@given(st.integers(1, 4000), st.integers(0, 99), st.data())
def test_a_slice_is_that_part_of_the_whole(n: int, seed: int, data: st.DataObject) -> None:
    start, stop = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    shuffled = permutation(n, seed, 3)
    np.testing.assert_array_equal(shuffled[start:stop], shuffled[:][start:stop])
    places = np.asarray(data.draw(st.lists(st.integers(0, n - 1), max_size=9)), dtype=np.int64)
    np.testing.assert_array_equal(shuffled.at(places), shuffled[:][places])


@pytest.mark.parametrize("n", [10**6 + 3, 2**31, 2**31 + 1, 10**12, 2**53 + 11, 2**62 - 1, 2**62])
def test_huge_orders_stay_in_range_and_repeat_nothing(n: int) -> None:
    shuffled = permutation(n, 7, 1)
    parts = [shuffled[a : a + 3000] for a in (0, n // 2, n - 3000)]
    samples = np.concatenate(parts)
    assert samples.min() >= 0
    assert samples.max() < n
    assert len(np.unique(samples)) == 9000
    # spread over the whole range: each third gets about a third
    counts = np.histogram(samples.astype(float) / n, bins=3, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_largest_possible_order_can_be_inverted_where_it_is_looked_at() -> None:
    shuffled = permutation(LARGEST, 0, 0)
    places = np.asarray([0, 1, 2**40, LARGEST - 1], dtype=np.int64)
    samples = shuffled.at(places)
    for place, sample in zip(places, samples, strict=True):
        start = max(0, int(place) - 50)
        assert int(sample) in shuffled[start : start + 101].tolist()


@pytest.mark.parametrize("n", [3, 5, 12, 50, 512, 513, 700, 1500])
def test_every_position_holds_every_sample_equally_often(n: int) -> None:
    seeds = 4000
    bins = min(n, 25)
    edges = np.arange(bins + 1) * n / bins
    sizes = np.diff(np.ceil(edges))
    first = np.array([permutation(n, seed, 0).at(np.asarray([0, n // 2, n - 1])) for seed in range(seeds)])
    for column in range(3):
        counts = np.histogram(first[:, column], bins=np.ceil(edges) - 0.5)[0]
        assert stats.chisquare(counts, sizes / n * seeds).pvalue > 1e-4


@pytest.mark.parametrize("n", [400, 600, 5000, 40_000])
def test_neighbours_and_consecutive_epochs_are_not_correlated(n: int) -> None:
    one, two = permutation(n, 3, 0)[:].astype(float), permutation(n, 3, 1)[:].astype(float)
    limit = 4.5 / math.sqrt(n)  # 4.5 standard deviations
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < limit
    assert abs(np.corrcoef(one, two)[0, 1]) < limit
    assert abs(np.corrcoef(one, permutation(n, 4, 0)[:])[0, 1]) < limit
    assert stats.kstest((np.diff(one) % n) / n, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_all_orders_of_few_samples_are_reached_equally_often(n: int) -> None:
    seeds = 200 * math.factorial(n)
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(seeds):
        key = tuple(permutation(n, seed, 0)[:].tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == math.factorial(n)
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4 or n == 1


def test_seed_and_epoch_are_mixed_and_not_added() -> None:
    assert permutation(1000, 1, 0)[:].tolist() != permutation(1000, 0, 1)[:].tolist()
    assert permutation(1000, 5, 2)[:].tolist() == permutation(1000, 5, 2)[:].tolist()


def test_golden_values_that_must_never_change() -> None:
    """A checkpoint goes on in the order of its seed: these values are part of its format."""
    assert permutation(10, 0, 0)[:].tolist() == GOLDEN[10]
    assert permutation(1000, 42, 7)[100:108].tolist() == GOLDEN[1000]
    assert permutation(10**12, 42, 7)[10**11 : 10**11 + 4].tolist() == GOLDEN[10**12]


def test_what_is_out_of_range_is_refused() -> None:
    for arguments in ((-1, 0, 0), (LARGEST + 1, 0, 0), (3, -1, 0), (3, 0, -1)):
        with pytest.raises(ConfigError, match="permutation"):
            permutation(*arguments)
    with pytest.raises(ConfigError, match="step"):
        permutation(9, 0, 0)[::2]


def test_an_order_is_a_value() -> None:
    assert permutation(9, 1, 2) == permutation(9, 1, 2)
    assert isinstance(permutation(9, 1, 2), Permutation)
    assert len(permutation(9, 1, 2)) == 9


GOLDEN = {
    10: [9, 2, 4, 6, 5, 0, 7, 3, 1, 8],
    1000: [126, 403, 685, 663, 960, 834, 933, 97],
    10**12: [17036884530, 381406798964, 641313953559, 96126711141],
}
