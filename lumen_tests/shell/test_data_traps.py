"""Data that lie, split themselves in odd ways, or cannot travel: no sample is lost in silence, and nothing hangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lumen.errors import DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Span
from lumen_tests.shell.datasets import (
    Numbers,
    Splitting,
    Stream,
    ended,
    flat,
    gone_on,
    indices,
    opened,
    rank,
    stopped_after,
)

io = paddle.io


class Told(Stream):
    """It reads the part that the start of its worker tells it to."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.first, self.step = 0, 1

    def numbers(self) -> Any:
        return range(self.first, self.length, self.step)


def by_argument(dataset: Told) -> Any:
    def start(number: int) -> None:
        dataset.first, dataset.step = number, 3

    return start


def by_info(_: Told) -> Any:
    def start(number: int) -> None:
        info = io.get_worker_info()
        info.dataset.first, info.dataset.step = info.id, info.num_workers

    return start


@pytest.mark.parametrize("make", [by_argument, by_info])
@pytest.mark.parametrize("size", [1, 2])
def test_a_split_that_worker_init_fn_makes_is_noticed(make: Any, size: int) -> None:
    def loader() -> Any:
        dataset = Told(23)
        return io.DataLoader(dataset, batch_size=2, num_workers=3, worker_init_fn=make(dataset))

    shards = [flat(indices(ended(opened(loader(), rank(size, number), training=False)))) for number in range(size)]
    assert sorted(index for shard in shards for index in shard) == list(range(23))
    if size == 1:
        whole = indices(ended(opened(loader())))
        _, state, span = stopped_after(opened(loader()), 4)
        assert indices(gone_on(loader(), [state], span)) == whole[4:]


def test_a_start_that_changes_nothing_splits_nothing() -> None:
    loader = io.DataLoader(Stream(23), batch_size=2, num_workers=3, worker_init_fn=np.random.seed)
    assert sorted(flat(indices(ended(opened(loader))))) == list(range(23))


def test_a_stream_can_be_read_again_in_the_same_epoch_by_workers_that_stay() -> None:
    source = opened(io.DataLoader(Stream(9), batch_size=2, num_workers=2, persistent_workers=True), training=False)
    for _ in range(3):
        assert flat(indices(list(source.epoch(Span())))) == list(range(9))
    source.close()


def test_persistent_workers_begin_each_epoch_in_their_order() -> None:
    def made() -> Any:
        return io.DataLoader(Splitting(15), batch_size=2, num_workers=2, persistent_workers=True)

    source = opened(made())
    whole = [indices(list(source.epoch(Span(epoch)))) for epoch in (0, 1)]
    source.close()
    _, state, span = stopped_after(opened(made()), 3)
    source = opened(made())
    source.restore([state], span, 0)
    assert [indices(list(source.epoch(each))) for each in (span, Span(1))] == [whole[0][3:], whole[1]]
    source.close()


class Placed(io.Sampler):  # type: ignore[misc]
    """It shuffles by its epoch, keeps its own place, and starts anew after its end."""

    def __init__(self, length: int = 24) -> None:
        super().__init__()
        self.length, self.epoch, self.at = length, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng(self.epoch).permutation(self.length)
        while self.at < self.length:
            self.at += 1
            yield int(order[self.at - 1])
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def placed(workers: int) -> Any:
    batches = io.BatchSampler(sampler=Placed(), batch_size=2)
    return io.DataLoader(Numbers(24), batch_sampler=batches, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [1, 2])
def test_a_sampler_with_a_place_goes_on_in_its_epoch_on_any_rank_and_through_epochs(workers: int, size: int) -> None:
    for number in range(size):
        world = rank(size, number)
        source = opened(placed(workers), world)
        whole = [indices(list(source.epoch(Span(epoch)))) for epoch in (0, 1)]
        source.close()
        assert len(whole[0]) == len(whole[1]) == 12 // size
        assert whole[0] != whole[1]
        source = opened(placed(workers), world)
        list(source.epoch(Span(0)))
        _, state, span = stopped_after(source, 3, Span(1))
        assert indices(gone_on(placed(workers), [state] * size, span, world)) == whole[1][3:]
        source = opened(placed(workers), world)
        list(source.epoch(Span(0)))
        at_end = source.state()
        source.close()
        assert indices(gone_on(placed(workers), [at_end] * size, Span(1), world)) == whole[1]


class Counting(io.Sampler):  # type: ignore[misc]
    """It moves on by itself when it has been run to its end."""

    def __init__(self, length: int, announced: int) -> None:
        super().__init__()
        self.length, self.announced, self.runs = length, announced, 0

    def __len__(self) -> int:
        return self.announced

    def __iter__(self) -> Iterator[int]:
        yield from range(self.length)
        self.runs += 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_is_run_to_its_end(workers: int) -> None:
    sampler = Counting(16, 16)
    loader = io.DataLoader(
        Numbers(16), batch_sampler=io.BatchSampler(sampler=sampler, batch_size=2), num_workers=workers
    )
    source = opened(loader)
    for epoch in range(3):
        list(source.epoch(Span(epoch)))
    source.close()
    assert sampler.runs == 3


@pytest.mark.parametrize(("announced", "word"), [(4, "more"), (18, "fewer")])
def test_a_length_that_lies_is_an_error_that_names_it(announced: int, word: str) -> None:
    batches = io.BatchSampler(sampler=Counting(10, announced), batch_size=2)
    source = opened(io.DataLoader(Numbers(10), batch_sampler=batches))
    with pytest.raises(
        DataError, match=rf"BatchSampler.__len__: got .*{word} came|BatchSampler.__len__: .*{word} came"
    ):
        list(source.epoch(Span()))


class Short:
    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        return iter([{"index": np.array([1])}, {"index": np.array([1, 2, 3])}])


def test_ready_batches_are_counted_one_by_one_and_their_length_is_checked() -> None:
    items = []
    with pytest.raises(DataError, match=r"Short.__len__: 5 batches, and fewer came"):
        items.extend(opened(Short()).epoch(Span()))
    uneven = [{"index": np.zeros(size)} for size in (4, 1, 3)]
    assert [samples for _, samples, _ in ended(opened(uneven))] == [4, 1, 3]


class Keyed(io.Dataset):  # type: ignore[misc]
    def __getitem__(self, key: Any) -> Any:
        return {"index": {"a": 1, "b": 2, ("a", 3): 3}[key]}


@pytest.mark.parametrize("workers", [0, 2])
def test_indices_of_the_users_sampler_may_be_anything(workers: int) -> None:
    loader = io.DataLoader(Keyed(), batch_sampler=[["a", "b"], [("a", 3)]], num_workers=workers)
    assert indices(ended(opened(loader))) == [[1, 2], [3]]


class Rolling(io.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "roll": paddle.randint(0, 10**6, [1]).item()}


def test_paddles_random_numbers_in_workers_are_the_same_on_a_resume() -> None:
    def made() -> Any:
        return io.DataLoader(Rolling(), batch_size=2, num_workers=2)

    whole = ended(opened(made()))
    rolls = [np.asarray(batch["roll"]).tolist() for batch, _, _ in whole]
    assert len({roll for batch in rolls for roll in batch}) > 4
    _, state, span = stopped_after(opened(made()), 2)
    assert [np.asarray(batch["roll"]).tolist() for batch, _, _ in gone_on(made(), [state], span)] == rolls[2:]


class OddError(Exception):
    """It can be pickled, and not be made again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


class Odd(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise OddError("a", "b")
        return super().__getitem__(index)


def test_an_error_that_cannot_be_made_again_is_told_as_text() -> None:
    source = opened(io.DataLoader(Odd(9), batch_size=2, num_workers=2))
    seen = []
    with pytest.raises(DataError, match="OddError"):
        seen.extend(source.epoch(Span()))
    source.close()
    assert indices(seen) == [[0, 1], [2, 3]] or not seen  # `extend` keeps what it got on some versions of Python


def test_a_batch_that_cannot_travel_is_an_error_and_not_a_hang() -> None:
    loader = io.DataLoader(Numbers(4), batch_size=2, num_workers=2, collate_fn=lambda items: {"f": lambda: len(items)})
    source = opened(loader)
    with pytest.raises((AttributeError, TypeError, DataError), match=r"pickle|local object|lambda"):
        list(source.epoch(Span()))
    source.close()


def test_what_is_no_loader_inside_a_list_of_loaders_or_samplers_is_refused() -> None:
    both = ended(opened([io.DataLoader(Numbers(4), batch_size=2), [{"index": np.array([7])}]]))
    assert [list(map(len, (batch[0]["index"], batch[1]["index"]))) for batch, _, _ in both] == [[2, 1], [2, 1]]
    with pytest.raises(DataError, match="iterated only once"):
        opened(io.DataLoader(Numbers(4), batch_sampler=(batch for batch in [[0], [1]])))
