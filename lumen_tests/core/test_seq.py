"""The iterations that loaders share."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from lumen.core.seeding import batch_key, stream_key
from lumen.core.seq import chunks, dealt, with_last


@given(st.lists(st.integers()))
def test_with_last_marks_the_last_and_only_it(items: list[int]) -> None:
    assert list(with_last(items)) == [(item, index == len(items) - 1) for index, item in enumerate(items)]


def test_with_last_reads_one_ahead_and_no_more() -> None:
    read: list[int] = []

    def reading() -> Iterator[int]:
        for item in range(5):
            read.append(item)
            yield item

    marked = with_last(reading())
    next(marked)
    assert read == [0, 1]


@given(st.lists(st.integers(), max_size=40), st.integers(1, 6), st.booleans())
def test_ranks_take_turns(items: list[int], size: int, fill: bool) -> None:
    shards = [list(dealt(items, size, rank, fill=fill)) for rank in range(size)]
    flat = [shards[place % size][place // size] for place in range(len(items))]
    assert flat == items
    if fill:
        assert len(set(map(len, shards))) == 1
    else:
        assert sum(map(len, shards)) == len(items)


@given(st.lists(st.integers(), max_size=40), st.integers(1, 7))
def test_chunks(items: list[int], size: int) -> None:
    parts = list(chunks(size, items))
    assert [item for part in parts for item in part] == items
    assert all(len(part) == size for part in parts[:-1])


def test_a_round_is_read_when_it_is_asked_for_and_no_sooner() -> None:
    read: list[int] = []

    def reading() -> Iterator[int]:
        for item in range(9):
            read.append(item)
            yield item

    mine = dealt(reading(), 3, 1, fill=True)
    assert next(mine) == 1
    assert read == [0, 1, 2]


def test_keys_of_streams_and_batches_differ_and_never_change() -> None:
    keys = {
        stream_key(seed, epoch, rank, stream, *more)
        for seed in (0, 1)
        for epoch in (0, 1)
        for rank in (0, 1)
        for stream in ("paddle", "numpy", "python", "worker")
        for more in ((), (0,), (1,))
    }
    assert len(keys) == 2 * 2 * 2 * 4 * 3
    assert stream_key(42, 3, 1, "numpy") == KEYS[0]
    assert len({batch_key(7, batch) for batch in range(1000)}) == 1000
    assert batch_key(42, 3) == KEYS[1]


KEYS = (2368110665, 1478287871)
