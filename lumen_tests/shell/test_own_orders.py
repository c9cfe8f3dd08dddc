"""Orders of the user's own: samplers and ready batches, resumed at any batch and on other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lumen.errors import CheckpointError, DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Span
from lumen_tests.shell.datasets import Numbers, ended, flat, gone_on, indices, opened, rank, stopped_after

io = paddle.io
N = 23


class Drawn(io.Sampler):  # type: ignore[misc]
    """A sampler of the user's that shuffles by numpy's global generator."""

    def __init__(self, length: int = N) -> None:
        super().__init__()
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self.length).tolist())


class Unsized(io.Sampler):  # type: ignore[misc]
    """The same without a length."""

    def __init__(self, length: int = N) -> None:
        super().__init__()
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self.length).tolist())


class Keeping(Drawn):
    """It keeps its own place: a resume that replayed it from the start would give other samples."""

    def __init__(self, length: int = N) -> None:
        super().__init__(length)
        self.at = self.loads = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]
        self.loads += 1


def loader(sampler: Any, batch_size: int = 3, workers: int = 0) -> Any:
    batches = io.BatchSampler(sampler=sampler, batch_size=batch_size)
    return io.DataLoader(Numbers(N), batch_sampler=batches, num_workers=workers)


class Batches:
    """Batches made in a random order, anew in each epoch; with a length."""

    def __iter__(self) -> Iterator[Any]:
        for number in np.random.permutation(8):
            yield {"index": np.array([number]), "random": np.random.rand(1)}

    def __len__(self) -> int:
        return 8


class Streamed(Batches):
    __len__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Drawn, Unsized, Keeping])
def test_a_resume_at_any_batch_of_a_samplers_order(kind: Any, workers: int) -> None:
    whole = ended(opened(loader(kind(), workers=workers)), Span(2))
    assert [last for _, _, last in whole] == [False] * 7 + [True]
    for done in (1, 4, 7):
        items, state, span = stopped_after(opened(loader(kind(), workers=workers)), done, Span(2))
        assert state["batches"] == done
        assert indices(items) + indices(gone_on(loader(kind(), workers=workers), [state], span)) == indices(whole)


@pytest.mark.parametrize("kind", [Batches, Streamed])
def test_a_resume_at_any_batch_of_ready_batches(kind: Any) -> None:
    whole = ended(opened(kind()), Span(2))
    for done in (1, 4, 7):
        items, state, span = stopped_after(opened(kind()), done, Span(2))
        rest = gone_on(kind(), [state], span)
        assert indices(items) + indices(rest) == indices(whole)
        for (batch, _, _), (other, _, _) in zip(rest, whole[done:], strict=True):
            np.testing.assert_array_equal(batch["random"], other["random"])
    assert indices(ended(opened(kind()), Span(3))) != indices(whole)


@pytest.mark.parametrize("make", [lambda: loader(Drawn()), lambda: loader(Unsized()), Batches, Streamed])
def test_a_resume_on_other_ranks_goes_on_where_all_of_them_stood(make: Any) -> None:
    whole = indices(ended(opened(make()), Span(1)))
    _, state, span = stopped_after(opened(make(), rank(2, 0)), 2, Span(1))
    assert state["batches"] == 4
    assert indices(gone_on(make(), [state, state], span)) == whole[4:]
    shards = [indices(gone_on(make(), [state, state], span, rank(3, r), training=False)) for r in range(3)]
    assert sorted(batch for shard in shards for batch in shard) == sorted(whole[4:])
    _, again, later = stopped_after(opened(make(), rank(2, 0)), 1, Span(1))
    source = opened(make(), rank(3, 0))
    source.restore([again], later, 0)
    assert source.left(later) in (2, None)
    source.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_samplers_state_is_that_of_the_batch_trained_on_not_of_those_read_ahead(workers: int) -> None:
    _, state, span = stopped_after(opened(loader(Keeping(), workers=workers)), 3)
    assert state["sampler"] == {"at": 9}
    sampler = Keeping()
    assert flat(indices(gone_on(loader(sampler, workers=workers), [state], span))) == list(range(9, N))
    assert sampler.loads == 1


class Dealing(io.DistributedBatchSampler):  # type: ignore[misc]
    """A sampler of the user's that deals to the ranks itself."""


def test_a_sampler_that_deals_to_the_ranks_itself_is_kept_and_not_doubled() -> None:
    def made(number: int, ranks: int = 2) -> Any:
        return io.DataLoader(Numbers(N), batch_sampler=Dealing(Numbers(N), 3, num_replicas=ranks, rank=number))

    shards = [ended(opened(made(number), rank(2, number))) for number in range(2)]
    assert set(flat(indices(shards[0])) + flat(indices(shards[1]))) == set(range(N))
    assert [samples for _, samples, _ in shards[0]] == [3, 3, 3, 3]
    with pytest.raises(DataError, match="deals to 4 ranks, on 2"):
        opened(made(0, 4), rank(2, 0))
    states = [stopped_after(opened(made(number), rank(2, number)), 2)[1] for number in range(2)]
    span = Span(0, 12, 2)
    rest = [gone_on(made(number), states, span, rank(2, number)) for number in range(2)]
    assert [indices(one) for one in rest] == [indices(shard[2:]) for shard in shards]
    with pytest.raises(CheckpointError, match="that of 1 ranks"):
        gone_on(made(1), states[:1], span, rank(2, 1))


def test_what_cannot_be_resumed_in_the_middle_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for make in (Streamed, lambda: [1, 2], lambda: loader(Drawn())):
        opened(make()).close()
    assert [record.message for record in caplog.records] == [
        "loader (Streamed): it cannot be entered in the middle: a resume reads its first batches again and drops them."
    ]
    opened(Streamed(), training=False).close()
    assert len(caplog.records) == 1
