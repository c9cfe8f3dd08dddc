"""Sampling: what the ranks get, over any change of world and batch size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumen.core.permute import order
from lumen.core.sampling import (
    Cursor,
    SamplerConfig,
    Sequential,
    Shuffled,
    Tail,
    batches_left,
    epoch_batches,
    epoch_end,
    global_samples,
    positions,
)
from lumen.core.world import World
from lumen.errors import ConfigError


def ranks(size: int) -> list[World]:
    return [World(size=size, rank=rank, local_size=size, local_rank=rank, node=0) for rank in range(size)]


def taken(config: SamplerConfig, size: int, cursor: Cursor) -> list[list[list[int]]]:
    """Each rank's batches."""
    return [[batch.tolist() for batch in epoch_batches(config, world, cursor)] for world in ranks(size)]


lengths, sizes, batch_sizes = st.integers(0, 300), st.integers(1, 8), st.integers(1, 32)
orders = st.sampled_from([Sequential(), Shuffled()])
configs = st.builds(
    SamplerConfig,
    length=lengths,
    batch_size=batch_sizes,
    order=orders,
    seed=st.integers(0, 9),
    tail=st.sampled_from(list(Tail)),
)


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


@settings(max_examples=300, deadline=None)
@given(configs, sizes, st.integers(0, 3), st.data())
def test_an_epoch_is_dealt_whole_in_order_and_evenly(
    config: SamplerConfig, size: int, epoch: int, data: st.DataObject
) -> None:
    consumed = data.draw(st.integers(0, config.length))
    cursor = Cursor(epoch=epoch, consumed=consumed)
    shards = taken(config, size, cursor)
    whole = order(config.length, config.seed, epoch)[:].tolist()
    base = whole if isinstance(config.order, Shuffled) else list(range(config.length))
    end = epoch_end(config, ranks(size)[0], cursor)
    expected = [base[place % config.length] for place in range(consumed, end)]
    # interleaving the ranks gives the order back
    flat = [[i for batch in shard for i in batch] for shard in shards]
    dealt = [flat[place % size][place // size] for place in range(len(expected))]
    assert dealt == expected
    assert sum(map(len, flat)) == len(expected)
    if config.tail is Tail.PAD:
        assert 0 <= end - max(config.length, consumed) < size
        assert len({len(shard) for shard in flat}) == 1
    elif config.tail is Tail.DROP:
        assert 0 <= config.length - end < size * config.batch_size
        assert all(len(batch) == config.batch_size for shard in shards for batch in shard)
    else:
        assert end == config.length
        assert len(set(dealt)) == len(dealt)
    for world, shard in zip(ranks(size), shards, strict=True):
        assert len(shard) == batches_left(config, world, cursor)
        for number, batch in enumerate(shard):
            np.testing.assert_array_equal(positions(config, world, cursor, number), batch)
    if config.tail is not Tail.KEEP:
        assert len({len(shard) for shard in shards}) == 1
        counts = [global_samples(config, ranks(size)[0], cursor, number) for number in range(len(shards[0]))]
        assert sum(counts) == min(end, config.length) - consumed


@settings(max_examples=300, deadline=None)
@given(
    lengths.filter(bool),
    orders,
    st.integers(0, 5),
    st.lists(st.tuples(sizes, batch_sizes, st.integers(0, 6)), min_size=1, max_size=5),
    sizes,
    batch_sizes,
)
def test_stopping_anywhere_and_going_on_with_other_ranks_and_batches_loses_and_repeats_nothing(
    length: int,
    kind: Sequential | Shuffled,
    seed: int,
    stretches: list[tuple[int, int, int]],
    last_size: int,
    last_batch: int,
) -> None:
    seen: list[int] = []
    consumed = 0

    def run(size: int, batch_size: int, limit: int | None) -> None:
        nonlocal consumed
        config = SamplerConfig(length=length, batch_size=batch_size, order=kind, seed=seed, tail=Tail.PAD)
        cursor = Cursor(epoch=2, consumed=consumed)
        shards = taken(config, size, cursor)
        count = len(shards[0]) if limit is None else min(limit, len(shards[0]))
        for number in range(count):
            samples = global_samples(config, ranks(size)[0], cursor, number)
            together = [
                shards[place % size][number][place // size] for place in range(sum(len(s[number]) for s in shards))
            ]
            seen.extend(together[:samples])
            consumed += samples

    for size, batch_size, limit in stretches:
        run(size, batch_size, limit)
    run(last_size, last_batch, None)
    assert consumed == length
    expected = order(length, seed, 2)[:].tolist() if isinstance(kind, Shuffled) else list(range(length))
    assert seen == expected


def test_a_shard_differs_from_epoch_to_epoch() -> None:
    config = SamplerConfig(length=100, batch_size=10, order=Shuffled(), seed=1)
    world = ranks(2)[0]
    one, two = (
        {i for batch in epoch_batches(config, world, Cursor(epoch=epoch)) for i in batch.tolist()} for epoch in (0, 1)
    )
    assert one != two


def test_any_batch_of_a_huge_set_is_reached_at_once() -> None:
    config = SamplerConfig(length=10**12, batch_size=32, order=Shuffled(), seed=0)
    world = ranks(8)[3]
    left = batches_left(config, world, Cursor())
    assert left == 10**12 // 256
    assert len(positions(config, world, Cursor(), left - 1)) == 32
    first = next(epoch_batches(config, world, Cursor()))
    np.testing.assert_array_equal(first, positions(config, world, Cursor(), 0))


@pytest.mark.parametrize("wrong", [{"length": -1}, {"length": 2**62 + 1}, {"batch_size": 0}, {"batch_size": 2.0}])
def test_wrong_configurations_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SamplerConfig(**({"length": 3, "batch_size": 2} | wrong))
