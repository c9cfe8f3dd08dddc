"""Datasets that the data tests share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from lumen.core.loading import LoaderPolicy
from lumen.core.world import World
from lumen.shell.loaders import open_training
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Item, Source, Span

io = paddle.io


class Numbers(io.Dataset):  # type: ignore[misc]
    """Each item is its index, and a random number as an augmentation."""

    def __init__(self, length: int = 23, bad: int = -1) -> None:
        super().__init__()
        self.length, self.bad = length, bad

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("the dataset was copied")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise KeyError("bad sample")
        return {"index": index, "random": np.float64(np.random.rand() + random.random())}


class Stream(io.IterableDataset):  # type: ignore[misc]
    """The numbers below a length, each with a random number; shuffled by numpy's global generator on demand."""

    def __init__(self, length: int = 23, *, shuffle: bool = False, bad: int = -1) -> None:
        super().__init__()
        self.length, self.shuffle, self.bad = length, shuffle, bad

    def numbers(self) -> Any:
        return np.random.permutation(self.length) if self.shuffle else range(self.length)

    def __iter__(self) -> Iterator[Any]:
        for number in self.numbers():
            if number == self.bad:
                raise KeyError("bad sample")
            yield {"index": int(number), "random": np.float64(np.random.rand() + random.random())}


class Splitting(Stream):
    """It splits itself over workers, as Paddle's documentation shows."""

    def numbers(self) -> Any:
        whole = list(super().numbers())
        info = io.get_worker_info()
        return whole if info is None else whole[info.id :: info.num_workers]


class Stateful(Stream):
    """It keeps its own place, and goes on from it; `read` counts what it gave."""

    def __init__(self, length: int = 23) -> None:
        super().__init__(length)
        self.at = self.read = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]

    def __iter__(self) -> Iterator[Any]:
        while self.at < self.length:
            self.at += 1
            self.read += 1
            yield {"index": self.at - 1, "random": np.float64(np.random.rand())}
        self.at = 0


def rank(size: int, number: int) -> World:
    return World(size=size, rank=number, local_size=size, local_rank=number, node=0)


def opened(loader: Any, world: World | None = None, *, training: bool = True, **options: Any) -> Source:
    policy = LoaderPolicy(training=training, seed=5, **options)
    return open_training(loader, world or World.single(), policy, "loader")


def ended(source: Source, span: Span | None = None) -> list[Item]:
    """All items, and the source closed."""
    try:
        return list(source.epoch(span or Span()))
    finally:
        source.close()


def indices(items: list[Item], key: str = "index") -> list[list[int]]:
    return [[int(i) for i in batch[key]] for batch, _, _ in items]


def flat(batches: list[list[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


def union(loader: Any, size: int, *, training: bool, **options: Any) -> list[int]:
    """What all ranks take together, sorted."""
    return sorted(
        index
        for number in range(size)
        for index in flat(indices(ended(opened(loader, rank(size, number), training=training, **options))))
    )


def stopped_after(source: Source, done: int, span: Span | None = None) -> tuple[list[Item], dict[str, Any], Span]:
    """The first batches of an epoch, the state after them, and where the epoch goes on."""
    span = span or Span()
    epoch = source.epoch(span)
    items = [next(epoch) for _ in range(done)]
    state = source.state()
    epoch.close()
    source.close()
    consumed = span.consumed + sum(samples for _, samples, _ in items)
    return items, state, Span(span.epoch, consumed, span.batch + done)


def gone_on(loader: Any, states: list[Any], span: Span, world: World | None = None, **options: Any) -> list[Item]:
    """The rest of an epoch, in a new source that takes the states back."""
    source = opened(loader, world, **options)
    source.restore(states, span, (world or World.single()).rank)
    return ended(source, span)
