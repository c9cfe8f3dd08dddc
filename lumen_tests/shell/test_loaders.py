"""Loaders: described, opened, fetched in process and in workers, resumed at any batch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest

from lumen.core.loading import LoaderKind
from lumen.errors import DataError
from lumen.shell.loaders import describe
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Source, Span
from lumen.shell.transfer import to_device
from lumen_tests.shell.datasets import Numbers, flat, opened, rank

io = paddle.io
N, B = 23, 4


def indices(source: Source, epoch: int = 0, **options: Any) -> list[list[int]]:
    try:
        return [[int(i) for i in batch["index"]] for batch, _, _ in source.epoch(Span(epoch, **options))]
    finally:
        source.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_is_the_dataset_and_resumes_at_any_batch(workers: int, shuffle: bool) -> None:
    source = opened(io.DataLoader(Numbers(), batch_size=B, shuffle=shuffle, num_workers=workers))
    whole = list(source.epoch(Span(3)))
    assert sorted(flat([[int(i) for i in b["index"]] for b, _, _ in whole])) == list(range(N))
    assert [samples for _, samples, _ in whole] == [4, 4, 4, 4, 4, 3]
    assert [last for _, _, last in whole] == [False] * 5 + [True]
    assert source.batches == source.left(Span(3)) == 6
    for done in range(1, 6) if not workers else (2, 5):
        assert source.left(Span(3, done * B, done)) == 6 - done
        rest = list(source.epoch(Span(3, consumed=done * B, batch=done)))
        assert len(rest) == 6 - done
        for (batch, samples, last), (other, other_samples, other_last) in zip(rest, whole[done:], strict=True):
            np.testing.assert_array_equal(batch["index"], other["index"])
            assert (samples, last) == (other_samples, other_last)
            if workers:  # by batch, so the same on a resume; in process the run's own streams are restored
                np.testing.assert_array_equal(batch["random"], other["random"])
    source.close()


def test_workers_give_other_random_numbers_in_each_batch_epoch_and_rank_and_leave_the_runs_alone() -> None:
    loader = io.DataLoader(Numbers(), batch_size=B, num_workers=2)
    np.random.seed(1)
    expected = np.random.RandomState(1).rand(3)
    seen = []
    for world in (rank(2, 0), rank(2, 1)):
        for epoch in (0, 1):
            source = opened(loader, world)
            seen += [float(x) for batch, _, _ in source.epoch(Span(epoch)) for x in batch["random"]]
            source.close()
    assert len(set(seen)) == len(seen)
    np.testing.assert_array_equal(np.random.rand(3), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_dataset_comes_as_it_is_with_a_note_and_no_hang(workers: int) -> None:
    source = opened(io.DataLoader(Numbers(bad=9), batch_size=B, num_workers=workers))
    with pytest.raises(KeyError, match="bad sample") as caught:
        list(source.epoch(Span(2)))
    source.close()
    notes = "\n".join(getattr(caught.value, "__notes__", ["dataset[9], epoch 2, rank 0"]))
    assert "dataset[9], epoch 2, rank 0" in notes
    if workers and hasattr(caught.value, "__notes__"):
        assert "in a worker process" in notes
        assert "__getitem__" in notes


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("cannot travel")
        self.held = lambda: None


class Raising(Numbers):
    def __getitem__(self, index: int) -> Any:
        raise UnpicklableError


def test_an_error_that_cannot_leave_its_worker_is_told_as_text() -> None:
    source = opened(io.DataLoader(Raising(), batch_size=B, num_workers=1))
    with pytest.raises(DataError, match="cannot travel"):
        list(source.epoch(Span(0)))
    source.close()


def test_a_worker_pool_can_be_left_in_the_middle_and_used_again() -> None:
    source = opened(io.DataLoader(Numbers(), batch_size=B, num_workers=2, persistent_workers=True))
    for _ in range(2):
        epoch = source.epoch(Span(0))
        next(epoch)
        epoch.close()
        source.close()
    assert sorted(flat(indices(source))) == list(range(N))


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_take_equally_many_batches_in_training_and_every_sample_once_in_evaluation(size: int) -> None:
    loader = io.DataLoader(Numbers(), batch_size=B, shuffle=True)
    samples = [[count for _, count, _ in opened(loader, rank(size, r)).epoch(Span(0))] for r in range(size)]
    assert all(counts == samples[0] for counts in samples)
    assert sum(samples[0]) == N
    assert samples[0][0] == size * B
    shards = [indices(opened(loader, rank(size, r))) for r in range(size)]
    assert len({tuple(map(len, shard)) for shard in shards}) == 1
    assert set(flat([flat(shard) for shard in shards])) == set(range(N))
    shards = [indices(opened(loader, rank(size, r), training=False)) for r in range(size)]
    assert sorted(flat([flat(shard) for shard in shards])) == list(range(N))


def test_drop_last_drops_in_training_and_not_in_evaluation() -> None:
    loader = io.DataLoader(Numbers(), batch_size=B, drop_last=True)
    assert len(flat(indices(opened(loader)))) == 20
    assert len(flat(indices(opened(loader, training=False)))) == N


def test_a_limit_ends_the_epoch_and_says_so() -> None:
    source = opened(io.DataLoader(Numbers(), batch_size=B))
    assert [last for _, _, last in source.epoch(Span(0, limit=3))] == [False, False, True]
    assert [last for _, _, last in source.epoch(Span(0, consumed=8, batch=2, limit=3))] == [True]


def test_before_fetch_is_told_each_batch_before_its_samples_are_read() -> None:
    told: list[Any] = []

    class Told(Numbers):
        def __getitem__(self, index: int) -> Any:
            told.append(index)
            return super().__getitem__(index)

    list(
        opened(io.DataLoader(Told(5), batch_size=2)).epoch(
            Span(before_fetch=lambda batch: told.append(f"batch {batch}"))
        )
    )
    assert told == ["batch 0", 0, 1, "batch 1", 2, 3, "batch 2", 4]


class Where(io.Dataset):  # type: ignore[misc]
    """Each item is the process that read it, and what its start was told."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return np.array([os.getpid(), STARTED.get("worker", -1)])


class WhereStream(io.IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return (np.array([os.getpid(), STARTED.get("worker", -1)]) for _ in range(12))


STARTED: dict[str, int] = {}


@pytest.mark.parametrize("dataset", [Where, WhereStream])
def test_the_settings_of_the_workers_are_kept(dataset: Any) -> None:
    loader = io.DataLoader(
        dataset(),
        batch_size=2,
        num_workers=2,
        worker_init_fn=lambda number: STARTED.update(worker=number),
        persistent_workers=True,
        use_shared_memory=False,
        prefetch_factor=3,
        timeout=50,
        collate_fn=np.stack,
    )
    source = opened(loader)
    inner = source._workers._loader
    for name in ("num_workers", "use_shared_memory", "prefetch_factor", "timeout", "places"):
        assert getattr(inner, name) == getattr(loader, name), name
    first, second = ([tuple(np.asarray(b)[0].tolist()) for b, _, _ in source.epoch(Span(e))] for e in (0, 1))
    source.close()
    assert {worker for _, worker in first} == {0, 1}
    assert set(first) == set(second)  # the same processes
    assert os.getpid() not in {process for process, _ in first}
    assert STARTED == {}


class Dying(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 9:
            os.kill(os.getpid(), 9)
        return super().__getitem__(index)


def test_a_worker_that_is_killed_is_named() -> None:
    source = opened(io.DataLoader(Dying(), batch_size=B, num_workers=2, timeout=3))
    with pytest.raises(DataError, match="worker 0 was killed by signal 9"):
        list(source.epoch(Span()))
    source.close()


@pytest.mark.parametrize("dataset", [Numbers, WhereStream])
def test_an_error_of_the_workers_start_comes_as_it_is(dataset: Any) -> None:
    def start(number: int) -> None:
        raise ValueError("no such disk")

    source = opened(io.DataLoader(dataset(), batch_size=B, num_workers=2, worker_init_fn=start))
    with pytest.raises(ValueError, match="no such disk") as caught:
        list(source.epoch(Span()))
    source.close()
    if hasattr(caught.value, "__notes__"):
        assert "in worker_init_fn, worker" in "".join(caught.value.__notes__)


class Tensors(io.Sampler):  # type: ignore[misc]
    """A sampler whose indices are tensors."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        return iter(paddle.arange(5))


@pytest.mark.parametrize("workers", [0, 2])
def test_indices_may_be_tensors_arrays_or_tuples(workers: int) -> None:
    batches = [np.array([0, 1]), (2, 3), paddle.to_tensor([4])]
    for sampler in (batches, io.BatchSampler(sampler=Tensors(), batch_size=2)):
        loader = io.DataLoader(Numbers(), batch_sampler=sampler, num_workers=workers)
        assert indices(opened(loader)) == [[0, 1], [2, 3], [4]]


def weighted() -> Any:
    sampler = io.WeightedRandomSampler(np.ones(N), N)
    return io.DataLoader(Numbers(), batch_sampler=io.BatchSampler(sampler=sampler, batch_size=B))


class Backwards:
    """A batch sampler of the user's."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([5, 4], [3, 2], [1, 0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_sampler_of_the_users_is_kept_and_dealt_batch_by_batch(workers: int) -> None:
    sampler = Backwards()
    loader = io.DataLoader(Numbers(), batch_sampler=sampler, num_workers=workers)
    assert indices(opened(loader), 4) == [[5, 4], [3, 2], [1, 0]]
    assert sampler.epochs == [4]
    assert indices(opened(loader), batch=1) == [[3, 2], [1, 0]]
    assert indices(opened(loader, rank(2, 0))) == [[5, 4], [1, 0]]
    assert indices(opened(loader, rank(2, 1))) == [[3, 2], [5, 4]]  # filled up from the head
    assert indices(opened(loader, rank(2, 1), training=False)) == [[3, 2]]


def test_a_random_sampler_of_the_users_gives_one_order_to_all_ranks_and_again_on_a_resume() -> None:
    np.random.seed(8)
    whole = indices(opened(weighted()), 1)
    np.random.seed(9)
    assert indices(opened(weighted()), 1) == whole
    assert indices(opened(weighted()), 1, batch=2) == whole[2:]
    assert indices(opened(weighted()), 2) != whole
    shards = [indices(opened(weighted(), rank(2, r)), 1) for r in range(2)]
    assert [batch for pair in zip(*shards, strict=True) for batch in pair] == whole


def test_paddles_distributed_sampler_is_recognised_and_not_doubled() -> None:
    sampler = io.DistributedBatchSampler(Numbers(), batch_size=B, shuffle=True, num_replicas=2, rank=0)
    loader = io.DataLoader(Numbers(), batch_sampler=sampler)
    facts = describe(loader)
    assert (facts.length, facts.batch_size, facts.shuffle, facts.own_sampler) == (N, B, True, False)
    shards = [flat(indices(opened(loader, rank(2, r), training=False))) for r in range(2)]
    assert sorted(flat(shards)) == list(range(N))


def test_items_without_a_batch_dimension_and_a_collate_function_of_the_users() -> None:
    items = [batch for batch, _, _ in opened(io.DataLoader(Numbers(3), batch_size=None)).epoch(Span(0))]
    assert [item["index"] for item in items] == [0, 1, 2]
    loader = io.DataLoader(Numbers(4), batch_size=2, collate_fn=lambda items: [item["index"] * 10 for item in items])
    assert [batch for batch, _, _ in opened(loader).epoch(Span(0))] == [[0, 10], [20, 30]]


class Pair(NamedTuple):
    x: Any
    y: Any


@attrs.frozen
class Value:
    x: Any = attrs.field(validator=attrs.validators.instance_of(np.ndarray))
    y: Any = None


@dataclasses.dataclass
class Record:
    x: Any
    y: Any


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "kind", [Pair, Value, Record, lambda x, y: {"x": x, "y": [y, ("name", 3, None)]}, lambda x, y: "text"]
)
def test_batches_of_any_nesting_come_as_they_were_made(kind: Any, workers: int) -> None:
    def collate(items: list[Any]) -> Any:
        return kind(np.array([item["index"] for item in items]), np.array([item["random"] for item in items]))

    source = opened(io.DataLoader(Numbers(6), batch_size=4, collate_fn=collate, num_workers=workers))
    batches = [to_device(batch, None) for batch, _, _ in source.epoch(Span(0))]
    source.close()
    expected = kind(np.arange(4), np.zeros(4))
    assert [type(batch) for batch in batches] == [type(expected)] * 2
    if isinstance(expected, str):
        return
    xs = [batch["x"] if isinstance(batch, dict) else batch.x for batch in batches]
    assert all(isinstance(x, paddle.Tensor) for x in xs)
    assert [x.numpy().tolist() for x in xs] == [[0, 1, 2, 3], [4, 5]]
    if isinstance(expected, dict):
        assert batches[0]["y"][1] == ("name", 3, None)


class Doubling(io.DataLoader):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        for batch in [1, 2, 3]:
            yield batch * 2

    def __len__(self) -> int:
        return 3


class Stream:
    """Re-iterable, without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter([7, 8, 9])


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        ([1, 2, 3], [(1, False), (2, False), (3, True)]),
        (Stream(), [(7, False), (8, False), (9, True)]),
        (Doubling(Numbers(), batch_size=2), [(2, False), (4, False), (6, True)]),
    ],
)
def test_ready_batches_are_taken_as_they_come(loader: Any, expected: list[tuple[int, bool]]) -> None:
    source = opened(loader)
    assert [(batch, last) for batch, _, last in source.epoch(Span(0))] == expected
    assert [(batch, last) for batch, _, last in source.epoch(Span(1, batch=1))] == expected[1:]
    shards = [[batch for batch, _, _ in opened(loader, rank(2, r), training=False).epoch(Span(0))] for r in range(2)]
    assert shards == [[expected[0][0], expected[2][0]], [expected[1][0]]]


def test_what_cannot_be_used_is_refused_by_name() -> None:
    for loader in (
        iter([1]),
        Numbers(),
        3,
        "text",
        [],
        io.DataLoader(Numbers(0), batch_size=2),
    ):
        with pytest.raises(DataError, match="loader: "):
            opened(loader)


def test_kinds() -> None:
    assert describe(weighted()).own_sampler
    assert describe([1]).kind is LoaderKind.BATCHES
    assert describe(Doubling(Numbers(), batch_size=2)).kind is LoaderKind.SUBCLASS
    replaced = io.RandomSampler(Numbers(), replacement=True)
    drawn = io.DataLoader(Numbers(), batch_sampler=io.BatchSampler(sampler=replaced, batch_size=2))
    assert describe(drawn).own_sampler
