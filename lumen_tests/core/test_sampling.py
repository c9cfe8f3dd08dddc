"""Sampling: what the ranks get, in every order, over any change of world and batch size."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumen.core.orders.balanced import ClassBalanced
from lumen.core.orders.base import Order, Sequential, Shuffled, whole
from lumen.core.orders.bucketed import Bucketed, Cut
from lumen.core.orders.mixed import Concatenated, Mixed
from lumen.core.orders.sorted import Sorted
from lumen.core.orders.subset import Fold, Subset
from lumen.core.orders.weighted import Weighted
from lumen.core.permute import hashes
from lumen.core.sampling import Cursor, Dealt, SamplerConfig, Tail, cut_epoch, plan_epoch, same_dealing
from lumen.core.world import World
from lumen.errors import ConfigError


def ranks(size: int) -> list[World]:
    return [World(size=size, rank=rank, local_size=size, local_rank=rank, node=0) for rank in range(size)]


def taken(config: SamplerConfig, size: int, cursor: Cursor) -> list[list[list[int]]]:
    """Each rank's batches."""
    return [[batch.tolist() for batch in plan_epoch(config, world, cursor)] for world in ranks(size)]


def flat(shard: list[list[int]]) -> list[int]:
    return [sample for batch in shard for sample in batch]


def words(length: int, salt: int) -> Any:
    return hashes(np.arange(length), salt) % np.uint64(19)


def halves(length: int) -> list[int]:
    return [size for size in (length // 3, length - length // 3) if size]


ORDERS = {
    "sequential": lambda _: Sequential(),
    "shuffled": lambda _: Shuffled(),
    "sorted": lambda n: Sorted(words(n, 1)),
    "descending": lambda n: Sorted(words(n, 1), descending=True, of=Shuffled()),
    "weighted": lambda n: Weighted(words(n, 2) + np.uint64(1)),
    "weighted, more": lambda n: Weighted(words(n, 2) + np.uint64(1), n + 7),
    "weighted once": lambda n: Weighted(words(n, 2) + np.uint64(1), replacement=False),
    "balanced": lambda n: ClassBalanced(words(n, 3) % np.uint64(3)),
    "subset": lambda n: Subset(np.arange(n) % 3 != 1 if n > 2 else np.arange(n)),
    "subset of sorted": lambda n: Subset(np.arange(n)[::-1], order=Sorted(words(n, 1))),
    "fold": lambda n: Fold(k=3, fold=1) if n > 2 else Shuffled(),
    "held out": lambda n: Fold(k=3, fold=0, train=False),
    "concatenated": lambda n: Concatenated(sizes=halves(n)) if n else Sequential(),
    "mixed": lambda n: Mixed(sizes=halves(n), temperature=2.0) if n else Sequential(),
    "mixed to the last": lambda n: (
        Mixed([0.5, 0.5][: len(halves(n))], sizes=halves(n), stop="last") if n else Sequential()
    ),
    "mixed for ever": lambda n: (
        Mixed([0.9, 0.1][: len(halves(n))], sizes=halves(n), stop="never") if n else Sequential()
    ),
    "bucketed": lambda n: Bucketed(words(n, 4), bucket=2),
    "bucketed subset": lambda n: Bucketed(words(n, 4), bucket=3, of=Subset(np.arange(0, n, 2))),
    "by tokens": lambda n: Bucketed(words(n, 4), max_tokens=40, bucket=2),
    "by tokens and samples": lambda n: Bucketed(words(n, 4), max_tokens=60, max_samples=5),
}

lengths, sizes, batch_sizes = st.integers(0, 300), st.integers(1, 8), st.integers(1, 32)


@st.composite
def configurations(draw: Any) -> SamplerConfig:
    length = draw(lengths)
    order: Order = ORDERS[draw(st.sampled_from(list(ORDERS)))](length)
    return SamplerConfig(
        length=length,
        batch_size=draw(batch_sizes),
        order=order,
        seed=draw(st.integers(0, 9)),
        tail=draw(st.sampled_from(list(Tail))),
    )


def epoch_samples(config: SamplerConfig, epoch: int) -> list[int]:
    """All samples of an epoch; of an order that depends on the ranks as a set only."""
    order = config.order.of if isinstance(config.order, Bucketed) else config.order
    samples: list[int] = whole(order.arrange(config.length, config.seed, epoch)).tolist()
    return samples


@pytest.mark.parametrize(
    ("length", "size", "tail", "expected"),
    [
        (10, 3, Tail.PAD, [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]),
        (10, 3, Tail.KEEP, [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]),
        (10, 2, Tail.PAD, [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]),
        (1, 4, Tail.PAD, [[0], [0], [0], [0]]),
        (2, 8, Tail.PAD, [[0], [1], [0], [1], [0], [1], [0], [1]]),
        (2, 4, Tail.KEEP, [[0], [1], [], []]),
        (7, 1, Tail.PAD, [[0, 1, 2, 3, 4, 5, 6]]),
        (0, 3, Tail.PAD, [[], [], []]),
    ],
)
def test_golden_shards(length: int, size: int, tail: Tail, expected: list[list[int]]) -> None:
    config = SamplerConfig(length=length, batch_size=4, order=Sequential(), seed=0, tail=tail)
    assert [[i for batch in shard for i in batch] for shard in taken(config, size, Cursor())] == expected


def test_golden_batches_with_a_dropped_tail() -> None:
    config = SamplerConfig(length=11, batch_size=2, tail=Tail.DROP)
    assert taken(config, 2, Cursor()) == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]


@settings(max_examples=400)
@given(configurations(), sizes, st.integers(0, 3), st.data())
def test_an_epoch_is_dealt_whole_in_order_and_evenly(
    config: SamplerConfig, size: int, epoch: int, data: st.DataObject
) -> None:
    count = len(epoch_samples(config, epoch))
    plans = [plan_epoch(config, world, Cursor(epoch=epoch)) for world in ranks(size)]
    if isinstance(plans[0], Dealt):
        consumed = data.draw(st.integers(0, count))
    else:  # a run stops between global batches
        stop = data.draw(st.integers(0, plans[0].batches))
        consumed = sum(plans[0].samples(number) for number in range(stop))
    cursor = Cursor(epoch=epoch, consumed=consumed)
    plans = [plan_epoch(config, world, cursor) for world in ranks(size)]
    shards = [[batch.tolist() for batch in plan] for plan in plans]
    for plan, shard in zip(plans, shards, strict=True):
        assert len(shard) == plan.batches
        assert [plan.indices(number).tolist() for number in range(plan.batches)] == shard
        assert plan.indices(plan.batches + 1).tolist() == []
        assert all(shard)
    most = max(plan.batches for plan in plans)
    counts = [plans[0].samples(number) for number in range(most)]
    assert [plans[-1].samples(number) for number in range(most)] == counts
    together = [sample for shard in shards for sample in flat(shard)]
    if config.tail is not Tail.KEEP:
        assert len({len(shard) for shard in shards}) == 1
    if config.tail is Tail.PAD:
        assert sum(counts) == count - consumed
        assert 0 <= len(together) - (count - consumed) < size
    else:
        assert sum(counts) == len(together) <= count - consumed
    if config.tail is Tail.KEEP:
        assert len(together) == count - consumed
    if config.tail is Tail.DROP and isinstance(plans[0], Dealt):
        assert count - consumed - len(together) < size * config.batch_size
        assert all(len(batch) == config.batch_size for shard in shards for batch in shard)
    if isinstance(plans[0], Dealt) and not isinstance(config.order, Bucketed):
        # interleaving the ranks gives the order back
        order = epoch_samples(config, epoch)
        places = range(consumed, consumed + len(together))
        rows = [flat(shard) for shard in shards]
        assert [rows[i % size][i // size] for i in range(len(together))] == [order[place % count] for place in places]


@settings(max_examples=400)
@given(
    st.sampled_from(list(ORDERS)),
    st.integers(1, 300),
    st.integers(0, 5),
    st.lists(st.tuples(sizes, batch_sizes, st.integers(0, 6)), min_size=1, max_size=5),
    sizes,
    batch_sizes,
)
def test_stopping_anywhere_and_going_on_with_other_ranks_and_batches_loses_and_repeats_nothing(
    name: str, length: int, seed: int, stretches: list[tuple[int, int, int]], last_size: int, last_batch: int
) -> None:
    order = ORDERS[name](length)
    seen: list[int] = []
    consumed = 0
    cuts: tuple[Cut, ...] = ()

    def run(size: int, batch_size: int, limit: int | None) -> None:
        nonlocal consumed, cuts
        config = SamplerConfig(length=length, batch_size=batch_size, order=order, seed=seed, tail=Tail.PAD)
        world = ranks(size)[0]
        if cuts and same_dealing(cuts[-1], cut_epoch(config, world, (), consumed)[0]):
            cuts = cuts[:-1]
        cursor = Cursor(epoch=2, consumed=consumed, cuts=cuts)
        plan, shards = plan_epoch(config, world, cursor), taken(config, size, cursor)
        for number in range(plan.batches if limit is None else min(limit, plan.batches)):
            batches = [shard[number] for shard in shards]
            interleaved = [row[i] for i in range(max(map(len, batches))) for row in batches if i < len(row)]
            if isinstance(plan, Dealt):
                seen.extend(interleaved[: plan.samples(number)])
            else:  # padding repeats whole batches
                seen.extend(sample for batch in dict.fromkeys(map(tuple, batches)) for sample in batch)
            consumed += plan.samples(number)
        cuts = cut_epoch(config, world, cuts, consumed)

    for size, batch_size, limit in stretches:
        run(size, batch_size, limit)
    run(last_size, last_batch, None)
    config = SamplerConfig(length=length, batch_size=1, order=order, seed=seed)
    expected = epoch_samples(config, 2)
    assert consumed == len(expected)
    if isinstance(order, Bucketed):
        assert Counter(seen) == Counter(expected)
    else:
        assert seen == expected


def test_a_shard_differs_from_epoch_to_epoch() -> None:
    for order in (Shuffled(), Bucketed(words(100, 1)), Bucketed(words(100, 1), max_tokens=50), Weighted(np.ones(100))):
        config = SamplerConfig(length=100, batch_size=10, order=order, seed=1)
        one, two = (
            set(flat([batch.tolist() for batch in plan_epoch(config, ranks(2)[0], Cursor(epoch=epoch))]))
            for epoch in (0, 1)
        )
        assert one != two


def test_any_batch_of_a_huge_set_is_reached_at_once() -> None:
    config = SamplerConfig(length=10**12, batch_size=32, order=Shuffled(), seed=0)
    plan = plan_epoch(config, ranks(8)[3], Cursor())
    assert plan.batches == 10**12 // 256
    assert len(plan.indices(plan.batches - 1)) == 32
    np.testing.assert_array_equal(next(iter(plan)), plan.indices(0))


@pytest.mark.parametrize("wrong", [{"length": -1}, {"length": 2**62 + 1}, {"batch_size": 0}, {"batch_size": 2.0}])
def test_wrong_configurations_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SamplerConfig(**({"length": 3, "batch_size": 2} | wrong))
