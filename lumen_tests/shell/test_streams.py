"""Iterable datasets: dealt to ranks and workers, resumed at any batch, by count and by state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lumen.errors import CheckpointError, DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Span
from lumen_tests.shell.datasets import (
    Splitting,
    Stateful,
    Stream,
    ended,
    flat,
    gone_on,
    indices,
    opened,
    rank,
    stopped_after,
    union,
)

io = paddle.io
N = 23


def loader(dataset: Any, workers: int = 0, batch_size: int | None = 3, **options: Any) -> Any:
    return io.DataLoader(dataset, batch_size=batch_size, num_workers=workers, **options)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [Stream, Splitting])
def test_no_sample_comes_twice_and_none_is_left_out(kind: Any, workers: int) -> None:
    stream = loader(kind(N, shuffle=True), workers)
    for size in (1, 2):
        assert union(stream, size, training=False) == list(range(N))
        trained = union(stream, size, training=True)
        assert set(trained) == set(range(N))
        assert len(trained) - N < size * max(1, workers if kind is Splitting else 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Stream, Splitting])
def test_ranks_take_equally_many_batches_in_training_and_know_the_last(kind: Any, workers: int) -> None:
    shards = [ended(opened(loader(kind(N), workers), rank(2, number))) for number in range(2)]
    for shard in shards:
        assert [last for _, _, last in shard] == [False] * (len(shard) - 1) + [True]
    assert [samples for _, samples, _ in shards[0]] == [samples for _, samples, _ in shards[1]]
    assert sum(samples for _, samples, _ in shards[0]) == N
    assert [len(batch) for batch in indices(shards[0])] == [len(batch) for batch in indices(shards[1])]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Stream, Splitting, Stateful])
def test_a_resume_at_any_batch_goes_on_with_the_same_samples_and_random_numbers(kind: Any, workers: int) -> None:
    def made() -> Any:
        return loader(kind(N) if kind is Stateful else kind(N, shuffle=True), workers)

    whole = ended(opened(made()), Span(4))
    for done in range(1, len(whole)) if not workers else (1, 2, 5):
        items, state, span = stopped_after(opened(made()), done, Span(4))
        assert indices(items) == indices(whole[:done])
        rest = gone_on(made(), [state], span)
        assert indices(rest) == indices(whole[done:])
        for (batch, samples, last), (other, other_samples, other_last) in zip(rest, whole[done:], strict=True):
            np.testing.assert_array_equal(batch["random"], other["random"])
            assert (samples, last) == (other_samples, other_last)


@pytest.mark.parametrize(("workers", "size", "batch_size"), [(0, 1, 5), (2, 1, 3), (0, 2, 2), (3, 2, 4)])
@pytest.mark.parametrize("kind", [Stream, Stateful])
def test_a_resume_on_other_ranks_workers_and_batches_loses_and_repeats_nothing(
    kind: Any, workers: int, size: int, batch_size: int
) -> None:
    items, state, span = stopped_after(opened(loader(kind(N), 2), rank(2, 0)), 2)
    other, _, _ = stopped_after(opened(loader(kind(N), 2), rank(2, 1)), 2)
    seen = sorted(flat(indices(items)) + flat(indices(other)))
    assert seen == list(range(12))
    rest = [
        gone_on(loader(kind(N), workers, batch_size), [state, state], span, rank(size, number), training=False)
        for number in range(size)
    ]
    assert sorted(index for shard in rest for index in flat(indices(shard))) == list(range(12, N))


def test_a_dataset_with_a_state_is_not_read_again() -> None:
    _, state, span = stopped_after(opened(loader(Stateful(N))), 3)
    dataset = Stateful(N)
    assert flat(indices(gone_on(loader(dataset), [state], span))) == list(range(9, N))
    assert dataset.read == N - 9


def test_a_dataset_that_splits_itself_needs_as_many_workers_inside_an_epoch() -> None:
    _, state, span = stopped_after(opened(loader(Splitting(N), 2)), 2)
    with pytest.raises(CheckpointError, match="num_workers: got 3; allowed: 2"):
        gone_on(loader(Splitting(N), 3), [state], span)
    assert sorted(flat(indices(gone_on(loader(Splitting(N), 3), [state], Span(1))))) == list(range(N))


def test_epochs_differ_and_repeat_nothing_inside() -> None:
    source = opened(loader(Stream(N, shuffle=True), 2, persistent_workers=True))
    orders = [flat(indices(list(source.epoch(Span(epoch))))) for epoch in range(3)]
    source.close()
    assert all(sorted(order) == list(range(N)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_random_numbers_differ_over_ranks_and_epochs_and_leave_the_runs_alone() -> None:
    np.random.seed(1)
    paddle.seed(1)
    drawn = paddle.rand([3]).tolist()
    paddle.seed(1)
    expected = np.random.RandomState(1).rand(3)
    seen = [
        float(x)
        for number in range(2)
        for epoch in range(2)
        for workers in (0, 2)
        for batch, _, _ in ended(opened(loader(Splitting(8), workers, 2), rank(2, number)), Span(epoch + 10 * workers))
        for x in batch["random"]
    ]
    assert len(set(seen)) == len(seen)
    np.testing.assert_array_equal(np.random.rand(3), expected)
    assert paddle.rand([3]).tolist() == drawn


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_stream_comes_as_it_is_and_says_where(workers: int) -> None:
    source = opened(loader(Stream(N, bad=7), workers))
    with pytest.raises(KeyError, match="bad sample") as caught:
        list(source.epoch(Span(2)))
    source.close()
    notes = "\n".join(getattr(caught.value, "__notes__", ["sample 7 of the stream, epoch 2, rank 0"]))
    assert "sample 7 of the stream, epoch 2, rank 0" in notes


class Late(Stream):
    def __iter__(self) -> Iterator[Any]:
        for number in range(self.length):
            if number == 5:
                io.get_worker_info().num_workers  # noqa: B018
            yield {"index": number}


def test_a_split_that_comes_too_late_is_refused() -> None:
    source = opened(loader(Late(N), 1))
    with pytest.raises(DataError, match=r"Late.__iter__.*after the first sample"):
        list(source.epoch(Span()))
    source.close()


def test_drop_last_limits_and_ready_batches() -> None:
    dropped = ended(opened(loader(Stream(N), drop_last=True)))
    assert [len(batch) for batch in indices(dropped)] == [3] * 7
    assert dropped[-1][2]
    limited = ended(opened(loader(Stream(N))), Span(limit=2))
    assert [last for _, _, last in limited] == [False, True]
    single = ended(opened(loader(Stream(3), batch_size=None)))
    assert [batch["index"] for batch, _, _ in single] == [0, 1, 2]
    assert not ended(opened(loader(Stream(0))))


def test_a_stream_may_announce_its_length() -> None:
    class Sized(Stream):
        def __len__(self) -> int:
            return self.length

    assert opened(loader(Sized(N))).batches == 8
    assert opened(loader(Sized(N)), rank(2, 0)).batches == 4
    assert opened(loader(Sized(N), drop_last=True)).batches == 7
    assert opened(loader(Stream(N))).batches is None
