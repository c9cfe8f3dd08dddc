"""What is particular to each order."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lumen.core.orders.balanced import ClassBalanced
from lumen.core.orders.base import Order, Sequential, Shuffled, whole
from lumen.core.orders.bucketed import Bucketed
from lumen.core.orders.mixed import Concatenated, Mixed
from lumen.core.orders.mixture import Pattern, quotas
from lumen.core.orders.sorted import Sorted
from lumen.core.orders.subset import Fold, Subset
from lumen.core.orders.weighted import Weighted
from lumen.core.permute import hashes
from lumen.core.sampling import Cursor, SamplerConfig, Tail, plan_epoch
from lumen.errors import ConfigError
from lumen_tests.core.test_sampling import ranks


def epoch(order: Order, length: int, number: int = 0, seed: int = 0) -> list[int]:
    return whole(order.arrange(length, seed, number)).tolist()


class Texts:
    """A dataset without paddle: samples are what a function makes of a text."""

    def __init__(self, texts: list[str], make: Any) -> None:
        self.texts, self.make = texts, make

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        return self.make(self.texts[index])


TEXTS = ["ccc", "a", "dddd", "bb", "e"]
BY_LENGTH = [1, 4, 3, 0, 2]


# -- keys ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "make"),
    [
        ([3, 1, 4, 2, 1], str),
        (np.array([3, 1, 4, 2, 1], dtype="uint8"), str),
        ([np.int64(3), np.int64(1), np.int64(4), np.int64(2), np.int64(1)], str),
        (len, str),
        (lambda sample: np.float32(len(sample)), str),
        ("text", lambda text: {"text": text}),
        ("size", lambda text: {"size": len(text)}),
        (1, lambda text: (None, text)),
        (-1, lambda text: (None, np.zeros((len(text), 2)))),
        ("text", lambda text: SimpleNamespace(text=text)),
    ],
)
def test_keys_are_arrays_functions_or_columns(by: Any, make: Any) -> None:
    assert epoch(Sorted(by).bind(Texts(TEXTS, make)), 5) == BY_LENGTH


def test_a_dataset_that_offers_a_whole_column_is_asked_for_it() -> None:
    class Columns(Texts):
        def __getitem__(self, index: int) -> Any:
            raise AssertionError("asked for a sample")

        def column(self, name: str) -> Any:
            return {"text": self.texts, "size": np.array([len(text) for text in self.texts])}[name]

    for name in ("text", "size"):
        assert epoch(Sorted(name).bind(Columns(TEXTS, str)), 5) == BY_LENGTH


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sorted("txet").bind(Texts(TEXTS, lambda text: {"text": text})), "Did you mean 'text'"),
        (lambda: Sorted(3).bind(Texts(TEXTS, lambda text: (text,))), "a tuple of 1"),
        (lambda: Sorted("size").bind(Texts(TEXTS, lambda text: (text,))), "a field of a sample, which is a tuple"),
        (lambda: Sorted(lambda _: None).bind(Texts(TEXTS, str)), "a NoneType for sample 0"),
        (lambda: Sorted("text").bind(None), "no dataset"),
        (lambda: epoch(Sorted(len), 5), "Call order.bind"),
        (lambda: epoch(Sorted([1, 2]), 5), "2 values; allowed: one for each of 5"),
        (lambda: Sorted([[1, 2]]), r"shape \[1, 2\]"),
        (lambda: Sorted([1.0, float("nan")]), "nan for sample 1"),
        (lambda: Sorted(["a", "b"]), "an array of <U1"),
        (lambda: Sorted([[1], [1, 2]]), "inhomogeneous"),
        (lambda: Sorted(None), "got None"),
        (lambda: Sorted(2.5), "got 2.5"),
        (lambda: Sorted([1], of="shuffled"), r"Sorted\(of\)"),
    ],
)
def test_wrong_keys_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_error_of_the_users_function_says_at_which_sample() -> None:
    def failing(sample: str) -> int:
        return 1 // (len(sample) - 2)

    with pytest.raises(ZeroDivisionError) as caught:
        Sorted(failing).bind(Texts(TEXTS, str))
    assert "Sorted(by) of dataset[3]" in "".join(getattr(caught.value, "__notes__", ["Sorted(by) of dataset[3]"]))


def test_a_key_is_a_copy_and_cannot_be_changed() -> None:
    keys = np.array([2, 1])
    order = Sorted(keys)
    keys[:] = 0
    assert epoch(order, 2) == [1, 0]
    with pytest.raises(ValueError, match="read-only"):
        order.by[0] = 7


@given(st.lists(st.integers(-5, 5), max_size=40), st.booleans())
def test_sorted_is_stable_both_ways(keys: list[int], descending: bool) -> None:
    expected = sorted(range(len(keys)), key=lambda i: -keys[i] if descending else keys[i])
    assert epoch(Sorted(keys, descending=descending), len(keys)) == expected
    shuffled = epoch(Sorted(keys, descending=descending, of=Shuffled()), len(keys), 3)
    places = {sample: place for place, sample in enumerate(epoch(Shuffled(), len(keys), 3))}
    assert shuffled == sorted(expected, key=lambda i: (-keys[i] if descending else keys[i], places[i]))


# -- weights ------------------------------------------------------------------------------------------------------------


def test_samples_are_drawn_by_weight() -> None:
    weights = np.array([0, 1, 2, 3, 0, 4.0, 0])
    drawn = epoch(Weighted(weights, 50_000), 7, 2)
    counts = np.bincount(drawn, minlength=7)
    assert (counts[weights == 0] == 0).all()
    expected = weights[weights > 0] / weights.sum() * 50_000
    assert stats.chisquare(counts[weights > 0], expected).pvalue > 1e-3
    assert epoch(Weighted(weights, 50), 7, 3) != epoch(Weighted(weights, 50), 7, 2)


def test_without_replacement_no_sample_comes_twice_and_heavy_ones_come_first() -> None:
    weights = np.array([1.0, 1, 1, 1, 0, 50])
    firsts = Counter()
    for number in range(200):
        drawn = epoch(Weighted(weights, 3, replacement=False), 6, number)
        assert len(set(drawn)) == 3
        assert 4 not in drawn
        firsts[drawn[0]] += 1
    assert firsts[5] > 150
    assert sorted(epoch(Weighted(weights, replacement=False), 6)) == [0, 1, 2, 3, 5]


@given(st.integers(1, 60), st.integers(0, 9), st.data())
def test_any_part_of_a_computed_order_is_that_part_of_the_whole(length: int, number: int, data: st.DataObject) -> None:
    keys = hashes(np.arange(length), 4) % np.uint64(7) + np.uint64(1)
    order = data.draw(
        st.sampled_from(
            [
                Weighted(keys, 50),
                ClassBalanced(keys),
                Fold(k=3, fold=1),
                Mixed(sizes=[length], stop="never", num_samples=70),
            ]
        )
    )
    arranged = order.arrange(length, 1, number)
    places = np.array(
        data.draw(st.lists(st.integers(0, max(0, arranged.n - 1)), max_size=9 if arranged.n else 0)), dtype=np.int64
    )
    np.testing.assert_array_equal(arranged.at(places), whole(arranged)[places])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: epoch(Weighted([1, -2]), 2), "-2 for sample 1"),
        (lambda: epoch(Weighted([0, 0]), 2), "all 0"),
        (lambda: epoch(Weighted([1, 0], 2, replacement=False), 2), "at most the 1 samples"),
        (lambda: Weighted([1], 0), "num_samples"),
        (lambda: Subset([1, 1]), "a sample twice"),
        (lambda: Subset([-1]), "got -1"),
        (lambda: Subset([0.5]), "float64"),
        (lambda: epoch(Subset([3]), 3), "below 3"),
        (lambda: Fold(k=1, fold=0), r"Fold\(k\)"),
        (lambda: Fold(k=3, fold=3), "from 0 to 2"),
        (lambda: epoch(Mixed([1, 2, 3], sizes=[4, 4]), 8), "3 entries; allowed: one for each of 2"),
        (lambda: epoch(Mixed(sizes=[4, 5]), 8), "add up to the dataset's 8"),
        (lambda: epoch(Mixed(), 8), "ConcatDataset"),
        (lambda: Mixed([0, 1]), "a number > 0"),
        (lambda: Mixed([1, 1], temperature=2), "got 'both'"),
        (lambda: Mixed(temperature=0), "temperature"),
        (lambda: Mixed(stop="fist"), "Did you mean 'first'"),
        (lambda: Mixed(num_samples=3), 'stop="never"'),
        (lambda: Concatenated(sizes=[0, 3]), "sizes"),
        (lambda: Concatenated(sizes=3), "a list"),
        (lambda: epoch(Concatenated(sizes=[2, 2], orders=[Shuffled()]), 4), "1 entries"),
        (lambda: Bucketed([1], bucket=0), "bucket"),
        (lambda: Bucketed([1], max_samples=3), "max_tokens"),
        (lambda: epoch(Subset([0], order=Bucketed([1])), 1), "inside another order"),
    ],
)
def test_wrong_orders_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


# -- parts --------------------------------------------------------------------------------------------------------------


def test_a_subset_is_given_by_numbers_or_truth_values_and_its_order_sees_only_it() -> None:
    assert epoch(Subset([True, False, True], order=Sequential()), 3) == [0, 2]
    texts = Texts(TEXTS, str)
    assert epoch(Subset([4, 2, 0], order=Sorted(len)).bind(texts), 5) == [4, 0, 2]
    assert epoch(Fold(k=2, fold=0, order=Sorted(len)).bind(texts), 5) == sorted(
        epoch(Fold(k=2, fold=0), 5),
        key=lambda i: (len(TEXTS[i]), epoch(Fold(k=2, fold=0, order=Sequential()), 5).index(i)),
    )


@given(st.integers(0, 60), st.integers(2, 7), st.integers(0, 3))
def test_folds_hold_out_each_sample_once_whatever_the_epoch_and_the_runs_seed(length: int, k: int, seed: int) -> None:
    held_out = [epoch(Fold(k=k, fold=i, train=False, seed=seed), length) for i in range(k)]
    assert sorted(sample for part in held_out for sample in part) == list(range(length))
    assert max(map(len, held_out)) - min(map(len, held_out)) <= 1
    for i in range(k):
        train = epoch(Fold(k=k, fold=i, seed=seed), length, 5, seed=9)
        assert sorted(train + held_out[i]) == list(range(length))


# -- mixtures -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 5))
def test_a_pattern_gives_each_part_its_turns_in_order_without_a_gap(counts: list[int], seed: int) -> None:
    pattern = Pattern(tuple(counts), seed)
    parts, turns = pattern.at(np.arange(7 * pattern.block))
    for part, count in enumerate(counts):
        assert turns[parts == part].tolist() == list(range(7 * count))
    for block in range(7):
        inside = parts[block * pattern.block : (block + 1) * pattern.block]
        assert np.bincount(inside, minlength=len(counts)).tolist() == counts


def test_quotas_meet_decimals_exactly_and_others_to_a_thousandth() -> None:
    assert quotas([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert quotas([1, 1]) == (1, 1)
    got = quotas([np.pi, np.e, 1])
    assert np.abs(np.array(got) / sum(got) - np.array([np.pi, np.e, 1]) / (np.pi + np.e + 1)).max() < 1e-3


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(0, 4), st.sampled_from([None, 1.0, 3.0]))
def test_a_mixture_that_stops_at_the_first_repeats_nothing_and_goes_on_in_the_next_epoch(
    sizes: list[int], number: int, temperature: float | None
) -> None:
    order = Mixed(sizes=sizes, temperature=temperature)
    taken = epoch(order, sum(sizes), number)
    assert len(set(taken)) == len(taken) > 0
    # the end of an epoch passes over some samples by chance: with 60 epochs, one of 30 was never taken
    seen = {sample for each in range(300) for sample in epoch(order, sum(sizes), each)}
    assert seen == set(range(sum(sizes)))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 4))
def test_a_mixture_that_stops_at_the_last_has_seen_all_and_not_a_sample_more(sizes: list[int], number: int) -> None:
    order = Mixed([1.0] * len(sizes), sizes=sizes, stop="last")
    taken = epoch(order, sum(sizes), number)
    assert set(taken) == set(range(sum(sizes)))
    assert taken.count(taken[-1]) == 1


def test_a_mixture_that_never_stops_runs_through_each_dataset_over_the_epochs() -> None:
    order = Mixed([0.8, 0.2], sizes=[6, 20], stop="never", num_samples=13)
    stream = [sample for number in range(40) for sample in epoch(order, 26, number)]
    for part, size in ((range(6), 6), (range(6, 26), 20)):
        own = [sample for sample in stream if sample in part]
        for start in range(0, len(own) - size + 1, size):
            assert sorted(own[start : start + size]) == list(part)
    share = sum(sample < 6 for sample in stream) / len(stream)
    assert share == pytest.approx(0.8, abs=0.01)
    assert len(epoch(Mixed([0.8, 0.2], sizes=[6, 20], stop="never"), 26)) == 26


def test_temperature_goes_from_by_size_to_even() -> None:
    shares = [
        np.mean(np.array(epoch(Mixed(sizes=[900, 100], temperature=t, stop="never", num_samples=2000), 1000)) < 900)
        for t in (1.0, 2.0, 1e9)
    ]
    assert shares == pytest.approx([0.9, 0.75, 0.5], abs=0.01)


def test_sizes_and_keys_are_read_from_the_datasets() -> None:
    both = SimpleNamespace(datasets=[Texts(TEXTS, str), Texts(["x" * 9, "y"], str)])
    order = Concatenated(orders=[Sorted(len), Sequential()]).bind(both)
    assert epoch(order, 7) == [*BY_LENGTH, 5, 6]
    assert Mixed().bind(both).sizes == (5, 2)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=50), st.integers(0, 6), st.integers(1, 60))
def test_classes_are_balanced_and_a_rare_one_is_used_up_before_it_repeats(
    labels: list[int], number: int, count: int
) -> None:
    order = ClassBalanced(labels, count)
    counts = Counter(labels[sample] for sample in epoch(order, len(labels), number))
    assert sum(counts.values()) == count
    assert max(counts.values()) - min([counts[label] for label in set(labels)]) <= 2
    stream = [sample for each in range(6) for sample in epoch(order, len(labels), each)]
    for label in set(labels):
        own = [sample for sample in stream if labels[sample] == label]
        size = labels.count(label)
        for start in range(0, len(own) - size + 1, size):
            assert len(set(own[start : start + size])) == size


# -- buckets ------------------------------------------------------------------------------------------------------------

LENGTHS = np.random.RandomState(5).zipf(1.4, 2000).clip(1, 400)


def batches(order: Order, size: int, batch_size: int, number: int = 0) -> list[list[Any]]:
    config = SamplerConfig(length=2000, batch_size=batch_size, order=order, seed=1, tail=Tail.PAD)
    return [list(plan_epoch(config, world, Cursor(epoch=number))) for world in ranks(size)]


def waste(shards: list[list[Any]]) -> float:
    padded = sum(len(batch) * LENGTHS[batch].max() for shard in shards for batch in shard)
    return float(1 - sum(LENGTHS[batch].sum() for shard in shards for batch in shard) / padded)


def test_buckets_pad_far_less_than_a_shuffle_and_differ_from_epoch_to_epoch() -> None:
    shuffled = waste(batches(Shuffled(), 2, 16))
    for order in (Bucketed(LENGTHS, bucket=4), Bucketed(LENGTHS, bucket=4, max_tokens=2000, max_samples=64)):
        first, second = batches(order, 2, 16 if order.max_tokens is None else 1), batches(order, 2, 1, 1)
        assert waste(first) < shuffled / 3
        assert {frozenset(batch.tolist()) for batch in first[0]} != {frozenset(batch.tolist()) for batch in second[0]}


@given(st.integers(1, 8), st.integers(400, 5000), st.sampled_from([None, 1, 20]), st.integers(1, 20), st.integers(0, 3))
def test_no_batch_breaks_its_budget_and_ranks_get_similar_lengths_in_a_step(
    size: int, tokens: int, samples: int | None, bucket: int, number: int
) -> None:
    shards = batches(Bucketed(LENGTHS, max_tokens=tokens, max_samples=samples, bucket=bucket), size, 1, number)
    assert len({len(shard) for shard in shards}) == 1
    for shard in shards:
        for batch in shard:
            assert len(batch) * LENGTHS[batch].max() <= tokens
            assert len(batch) <= (samples or len(batch))


def test_lengths_that_are_all_equal_zero_or_fractions_are_no_trouble() -> None:
    for lengths in ([3] * 2000, [0] * 2000, np.linspace(0.5, 9, 2000)):
        for order in (Bucketed(lengths), Bucketed(lengths, max_tokens=50)):
            shards = batches(order, 3, 4)
            assert {sample for shard in shards for batch in shard for sample in batch.tolist()} == set(range(2000))


# -- the format of checkpoints ------------------------------------------------------------------------------------------

KEYS = [5, 3, 8, 1, 9, 2, 2, 7]
GOLDEN: list[tuple[Order, list[int]]] = [
    (Sequential(), [0, 1, 2, 3, 4, 5, 6, 7]),
    (Shuffled(), [3, 6, 4, 7, 5, 1, 0, 2]),
    (Mixed(sizes=[3, 5], temperature=2.0), [5, 7, 6, 3, 4, 1]),
    (Sorted(KEYS, of=Shuffled()), [3, 6, 5, 1, 0, 7, 2, 4]),
    (Weighted(KEYS), [5, 2, 5, 0, 4, 1, 7, 7]),
    (Weighted(KEYS, replacement=False), [3, 5, 4, 1, 2, 0, 7, 6]),
    (ClassBalanced([0, 0, 0, 0, 0, 1, 1, 2]), [2, 4, 6, 7, 7, 6, 0, 5]),
    (Subset([6, 1, 4]), [1, 6, 4]),
    (Fold(k=3, fold=1), [6, 4, 3, 2, 1]),
    (Fold(k=3, fold=1, train=False), [7, 0, 5]),
    (Mixed([0.5, 0.5], sizes=[3, 5]), [1, 5, 2, 3, 4, 0]),
    (Mixed([0.75, 0.25], sizes=[3, 5], stop="last"), [1, 5, 0, 2, 0, 7, 1, 2, 1, 0, 2, 6, 2, 1, 0, 3, 0, 2, 4]),
    (Mixed([0.75, 0.25], sizes=[3, 5], stop="never"), [1, 0, 2, 7, 2, 1, 0, 6]),
    (Concatenated(sizes=[3, 5]), [1, 2, 0, 5, 7, 6, 3, 4]),
]
DEALT: list[tuple[Order, list[list[list[int]]]]] = [
    (Bucketed(KEYS, bucket=1), [[[0, 2], [1, 5]], [[4, 7], [3, 6]]]),
    (Bucketed(KEYS, max_tokens=18, bucket=1), [[[7, 4], [0, 1, 3]], [[2], [5, 6]]]),
]


@pytest.mark.parametrize(("order", "expected"), GOLDEN)
def test_the_orders_of_a_checkpoint(order: Order, expected: list[int]) -> None:
    """A run goes on in the middle of such an order: these values are part of the checkpoints' format."""
    assert epoch(order, 8, 1) == expected


@pytest.mark.parametrize(("order", "expected"), DEALT)
def test_the_batches_of_a_checkpoint(order: Order, expected: list[list[list[int]]]) -> None:
    config = SamplerConfig(length=8, batch_size=2, order=order, seed=0)
    assert [[b.tolist() for b in plan_epoch(config, world, Cursor(epoch=1))] for world in ranks(2)] == expected


def test_a_fingerprint_tells_orders_apart_and_not_what_may_change_inside_an_epoch() -> None:
    orders = [
        Sequential(),
        Shuffled(),
        Sorted(KEYS),
        Sorted(KEYS[::-1]),
        Sorted(KEYS, descending=True),
        Sorted(KEYS, of=Shuffled()),
        Weighted(KEYS),
        Weighted([float(key) for key in KEYS]),
        Subset([1, 2]),
        Subset([2, 1]),
        Fold(k=3, fold=0),
        Mixed([1, 2]),
        Mixed([1, 2], sizes=[3, 5]),
        Concatenated(sizes=[3, 5]),
        Bucketed(KEYS),
        Bucketed(KEYS, of=Subset([1])),
    ]
    assert len({order.fingerprint for order in orders}) == len(orders)
    for order in orders:
        assert attrs.evolve(order).fingerprint == order.fingerprint
        assert order == attrs.evolve(order)
    assert Bucketed(KEYS, bucket=3).fingerprint == Bucketed(KEYS, max_tokens=9).fingerprint
