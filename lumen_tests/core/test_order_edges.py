"""Orders at their edges: small datasets, extreme weights, odd types."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.orders.balanced import ClassBalanced
from lumen.core.orders.base import Order, Sequential, Shuffled, whole
from lumen.core.orders.bucketed import Bucketed
from lumen.core.orders.mixed import Concatenated, Mixed
from lumen.core.orders.sorted import Sorted
from lumen.core.orders.subset import Fold, Subset
from lumen.core.orders.weighted import Weighted
from lumen.core.sampling import Cursor, SamplerConfig, plan_epoch
from lumen.errors import ConfigError
from lumen_tests.core.test_sampling import ranks


def epoch(order: Order, length: int, number: int = 0, seed: int = 0) -> list[int]:
    return whole(order.arrange(length, seed, number)).tolist()


def failing(sample: int) -> int:
    return 1 // (sample - 20)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with 3.11")
@pytest.mark.parametrize(
    "order",
    [
        Sorted(failing),
        Subset([4, 2], order=Sorted(failing)),
        Fold(k=2, fold=0, order=Sorted(failing)),
        Fold(k=2, fold=1, order=Sorted(failing)),
    ],
)
def test_a_note_names_the_index_in_the_dataset(order: Order) -> None:
    data = [0, 10, 20, 30, 40]
    if isinstance(order, Fold) and 2 not in epoch(Fold(k=2, fold=order.fold), 5):
        return
    with pytest.raises(ZeroDivisionError) as caught:
        order.bind(data)
    assert "dataset[2]" in "".join(caught.value.__notes__)


# -- keys, labels, weights ----------------------------------------------------------------------------------------------


def test_text_labels_are_classes_or_refused_but_not_taken_by_length() -> None:
    texts = ["cat", "dog", "dog", "dog"]
    try:
        order = ClassBalanced(lambda sample: sample).bind(texts)
    except ConfigError:
        return
    assert epoch(order, 4).count(0) == 2


def test_labels_in_arrays_of_one_number_are_that_number() -> None:
    """paddle.vision.datasets.MNIST gives its labels so."""
    data = [(None, np.array([label])) for label in (0, 1, 1, 1)]
    assert epoch(ClassBalanced(1).bind(data), 4).count(0) == 2


def test_weights_in_arrays_of_one_number_are_that_number() -> None:
    assert set(epoch(Weighted(lambda w: np.array([w])).bind([0.0, 1.0, 0.0]), 3)) == {1}


def test_unsigned_keys_beyond_int64_are_sorted_right_or_refused() -> None:
    try:
        order = Sorted(np.array([2**63 + 1, 1, 5], dtype=np.uint64))
    except ConfigError:
        return
    assert epoch(order, 3) == [1, 2, 0]


@pytest.mark.parametrize("scale", [1e-300, 1e-308, 1.0, 1e300, 5e307])
@pytest.mark.parametrize("replacement", [True, False])
def test_the_unit_of_weights_does_not_matter(scale: float, replacement: bool) -> None:
    weights = np.array([1.0, 2, 0, 3])
    count = 3 if not replacement else 200
    expected = epoch(Weighted(weights, count, replacement=replacement), 4)
    assert epoch(Weighted(weights * scale, count, replacement=replacement), 4) == expected


def test_heavy_samples_are_likelier_to_be_among_those_drawn_once() -> None:
    drawn = Counter(
        s for number in range(400) for s in epoch(Weighted([1, 2, 4, 8, 16], 2, replacement=False), 5, number)
    )
    counts = [drawn[sample] for sample in range(5)]
    assert counts == sorted(counts)
    assert counts[4] > 3 * counts[0]


# -- subsets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [[True, False], [True, False, True, False], [True, True, True, False, False]])
def test_a_mask_of_another_length_than_the_dataset_is_refused(mask: list[bool]) -> None:
    with pytest.raises(ConfigError):
        epoch(Subset(mask), 3)


@pytest.mark.parametrize("indices", [[[1], [1, 2]], (i for i in range(3)), "abc", {1, 2}, None, 3, [[1, 2]], [2**70]])
def test_indices_that_are_no_numbers_are_a_config_error(indices: object) -> None:
    with pytest.raises(ConfigError, match="Subset"):
        Subset(indices)


def test_folds_of_another_seed_are_others_and_of_another_run_the_same() -> None:
    held = Fold(k=5, fold=2, train=False)
    assert epoch(held, 100, 0, seed=0) == epoch(held, 100, 7, seed=3)
    assert epoch(held, 100) != epoch(Fold(k=5, fold=2, train=False, seed=1), 100)
    assert set(epoch(Fold(k=5, fold=2), 100, 0)) == set(epoch(Fold(k=5, fold=2), 100, 9, seed=4))
    assert epoch(Fold(k=5, fold=2), 100, 0) != epoch(Fold(k=5, fold=2), 100, 1)


# -- mixtures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [([0.7, 0.3], [300, 300]), ([0.9, 0.1], [2, 20]), ([0.99, 0.01], [50, 10000]), ([0.001, 0.999], [5, 100])],
)
def test_weights_are_met_however_small_a_dataset_is(weights: list[float], sizes: list[int]) -> None:
    order = Mixed(weights, sizes=sizes, stop="never", num_samples=10_000)
    assert np.mean(np.array(epoch(order, sum(sizes))) < sizes[0]) == pytest.approx(weights[0], abs=1e-3)


def test_every_block_meets_decimal_weights_exactly() -> None:
    drawn = np.array(epoch(Mixed([0.7, 0.2, 0.1], sizes=[700, 200, 100]), 1000, 3))
    which = np.searchsorted([700, 900], drawn, side="right")
    assert all(np.bincount(block, minlength=3).tolist() == [7, 2, 1] for block in which.reshape(-1, 10))


@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), st.integers(0, 9))
def test_an_epoch_that_stops_at_the_first_could_not_be_longer(sizes: list[int], number: int) -> None:
    arranged = Mixed([1.0] * len(sizes), sizes=sizes).arrange(sum(sizes), 0, number)
    which = np.searchsorted(np.cumsum(sizes), whole(arranged), side="right")
    more = int(np.searchsorted(np.cumsum(sizes), arranged.at(np.array([arranged.n]))[0], side="right"))
    assert Counter(which.tolist())[more] == sizes[more]


@pytest.mark.parametrize("sizes", [[4, 8], [4, 9], [4, 11], [10, 19]])
def test_a_larger_dataset_goes_on_in_the_next_epoch_and_is_seen_whole(sizes: list[int]) -> None:
    order = Mixed([0.5, 0.5], sizes=sizes, orders=[Sequential(), Sequential()])
    seen = {sample for number in range(60) for sample in epoch(order, sum(sizes), number)}
    assert seen == set(range(sum(sizes)))


@pytest.mark.parametrize("number", range(10))
def test_parts_whose_epochs_are_of_different_length_are_taken_whole(number: int) -> None:
    inner = Mixed([0.5, 0.5], sizes=[3, 20], stop="last")
    order = Concatenated(sizes=[23, 4], orders=[inner, Sequential()])
    assert all(set(epoch(order, 27, number, seed)) == set(range(27)) for seed in range(5))


@pytest.mark.parametrize("stop", ["first", "last", "never"])
@pytest.mark.parametrize("mixed", [{"weights": [1e308, 1e308]}, {"temperature": 1e-3}, {"temperature": 1e-300}])
def test_extreme_weights_and_temperatures_are_an_order(stop: str, mixed: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert epoch(Mixed(sizes=[5, 9], stop=stop, **mixed), 14)


def test_sizes_may_be_numpy_integers() -> None:
    assert epoch(Concatenated(sizes=np.array([2, 3])), 5) == epoch(Concatenated(sizes=[2, 3]), 5)


@pytest.mark.parametrize("number", range(20))
def test_classes_differ_by_two_at_most_in_every_epoch(number: int) -> None:
    labels = [0] * 20 + [1] * 9 + [2] * 3
    for count in (30, 31, 32):
        counts = Counter(labels[s] for s in epoch(ClassBalanced(labels, count), 32, number))
        assert max(counts.values()) - min(counts.values()) <= 2


def test_a_concatenation_keeps_its_datasets_apart() -> None:
    drawn = epoch(Concatenated(sizes=[4, 6], orders=[Sequential(), Shuffled()]), 10, 2)
    assert drawn[:4] == [0, 1, 2, 3]
    assert sorted(drawn[4:]) == list(range(4, 10))


def test_equal_mixtures_have_equal_fingerprints() -> None:
    assert Mixed([1, 2], sizes=[3, 3]) == Mixed([1.0, 2.0], sizes=[3, 3])
    assert Mixed([1, 2], sizes=[3, 3]).fingerprint == Mixed([1.0, 2.0], sizes=[3, 3]).fingerprint
    assert Mixed(np.array([1.0, 2.0])).fingerprint == Mixed([1.0, 2.0]).fingerprint


# -- buckets ------------------------------------------------------------------------------------------------------------

LENGTHS = np.random.RandomState(5).zipf(1.4, 2000).clip(1, 400)


def batches(order: Order, size: int, batch_size: int, number: int = 0) -> list[list[np.ndarray]]:
    config = SamplerConfig(length=2000, batch_size=batch_size, order=order, seed=1)
    return [list(plan_epoch(config, world, Cursor(epoch=number))) for world in ranks(size)]


@pytest.mark.parametrize("tokens", [None, 2000])
def test_batches_hold_similar_lengths_and_so_do_the_ranks_in_a_step(tokens: int | None) -> None:
    spreads = []
    for order in (Bucketed(LENGTHS, max_tokens=tokens, max_samples=tokens and 32, bucket=1), Shuffled()):
        shards = batches(order, 4, 16)
        steps = [LENGTHS[np.concatenate(step)] for step in zip(*shards, strict=True)]
        inside = [LENGTHS[batch] for shard in shards for batch in shard]
        spreads.append((np.mean([np.ptp(step) for step in steps]), np.mean([np.ptp(one) for one in inside])))
    assert np.all(np.array(spreads[0]) < np.array(spreads[1]) / 5)


@pytest.mark.parametrize("size", range(1, 9))
def test_ranks_have_equally_many_batches_within_the_budget(size: int) -> None:
    shards = batches(Bucketed(LENGTHS, max_tokens=900, max_samples=20), size, 1)
    assert len({len(shard) for shard in shards}) == 1
    assert max(len(b) * LENGTHS[b].max() for shard in shards for b in shard) <= 900
    assert max(len(b) for shard in shards for b in shard) <= 20


def test_a_sample_that_is_too_long_is_named_and_may_be_left_out() -> None:
    with pytest.raises(ConfigError, match="sample 1 alone has 9 tokens"):
        list(
            plan_epoch(
                SamplerConfig(length=2, batch_size=1, order=Bucketed([1, 9], max_tokens=4)), ranks(1)[0], Cursor()
            )
        )
    left = Bucketed([1, 9], max_tokens=4, of=Subset([0]))
    assert [
        b.tolist() for b in plan_epoch(SamplerConfig(length=2, batch_size=1, order=left), ranks(1)[0], Cursor())
    ] == [[0]]


@pytest.mark.parametrize("wrong", [{"max_tokens": 2**70}, {"bucket": 2**70}])
def test_huge_settings_of_buckets_are_refused_or_work(wrong: dict[str, int]) -> None:
    try:
        config = SamplerConfig(length=3, batch_size=1, order=Bucketed([1, 2, 3], **wrong))
        assert list(plan_epoch(config, ranks(1)[0], Cursor()))
    except ConfigError:
        pass


def test_sizes_are_read_from_anything_with_datasets() -> None:
    both = SimpleNamespace(datasets=[[1, 2, 3], [4]])
    assert sorted(epoch(Mixed(stop="last").bind(both), 4)) == [0, 1, 2, 3]
