"""Sources: the batches of one loader for one rank, from any point of an epoch on."""

from __future__ import annotations

import abc
import itertools
import random
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import numpy as np

from lumen.core.loading import Keep, Rebuild, Stride
from lumen.core.sampling import Cursor, SamplerConfig, batches_left, epoch_batches, global_samples
from lumen.core.seeding import stream_key
from lumen.core.seq import dealt, with_last
from lumen.core.world import World
from lumen.shell.fetching import Fetch, WorkerPool
from lumen.shell.transfer import batch_size_of

BeforeFetch = Callable[[int], None] | None
Item = tuple[Any, int, bool]
"""A batch as fetched, its samples over all ranks, and whether it is the epoch's last."""


class Source(abc.ABC):
    """The batches of one loader for one rank.

    Attributes:
        plan: What was decided about the loader.
        batches: Batches of a whole epoch on this rank; None: not known.
        config: How a dataset is sampled, where lumen samples it.
    """

    plan: Rebuild | Stride | Keep
    batches: int | None = None
    config: SamplerConfig | None = None

    def left(self, epoch: int, consumed: int, batch: int) -> int | None:
        """Batches left of an epoch; None: not known.

        Args:
            epoch: The epoch.
            consumed: Samples that all ranks consumed of it.
            batch: Batches that this rank took of it.
        """
        return None if self.batches is None else max(0, self.batches - batch)

    @abc.abstractmethod
    def epoch(
        self,
        epoch: int,
        *,
        consumed: int = 0,
        batch: int = 0,
        limit: int | None = None,
        before_fetch: BeforeFetch = None,
    ) -> Generator[Item, None, None]:
        """The rest of an epoch.

        Args:
            epoch: The epoch, which decides the order.
            consumed: Samples that all ranks consumed of it.
            batch: Batches that this rank took of it.
            limit: Most batches of the whole epoch, those taken included; None: all.
            before_fetch: Called with a batch's number before it is fetched in this process.
        """

    def close(self) -> None:  # noqa: B027 - most start nothing
        """Ends what the source started."""


class Planned(Source):
    """A map-style dataset sampled by lumen: any batch of any epoch is reached at once.

    Args:
        loader: The user's DataLoader.
        plan: How the dataset is sampled.
        world: The ranks among whom the samples are dealt.
        rank: The global rank, for the workers' randomness.
        unbatched: Whether items come one by one, without a batch dimension.
    """

    def __init__(self, loader: Any, plan: Rebuild, world: World, *, rank: int, unbatched: bool) -> None:
        self.plan = plan
        self.config: SamplerConfig = plan.config
        self._world = world
        self.batches = batches_left(self.config, world, Cursor())
        self._fetch = Fetch(loader, rank=rank, seed=self.config.seed, unbatched=unbatched)
        self._workers = WorkerPool(loader, self._fetch) if loader.num_workers else None

    def left(self, epoch: int, consumed: int, batch: int) -> int:
        """Batches left of an epoch."""
        return batches_left(self.config, self._world, Cursor(epoch=epoch, consumed=consumed))

    def epoch(
        self,
        epoch: int,
        *,
        consumed: int = 0,
        batch: int = 0,
        limit: int | None = None,
        before_fetch: BeforeFetch = None,
    ) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        config, world, cursor = self.config, self._world, Cursor(epoch=epoch, consumed=consumed)
        count = batches_left(config, world, cursor)
        if limit is not None:
            count = min(count, limit - batch)
        indices = itertools.islice(epoch_batches(config, world, cursor), max(0, count))
        fetched = _fetched(indices, self._fetch, self._workers, epoch, batch, count, before_fetch)
        whole = world.size * config.batch_size
        for index, data in enumerate(fetched):
            last = index == count - 1
            yield data, global_samples(config, world, cursor, index) if last else whole, last

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()


class OwnOrder(Source):
    """A map-style dataset in the order of the user's own sampler, dealt to the ranks batch by batch.

    The sampler is run with numpy's and Python's generators seeded by (seed, epoch), the same on all ranks, so that all
    see one order, and a resume sees it again; to the rest of the program they are as they were.

    Args:
        loader: The user's DataLoader.
        plan: Which batches of the order this rank takes.
        world: The ranks.
        seed: The run's seed.
        training: Whether every rank must take equally many batches; the order's first ones then fill up the last round.
        batches: Batches that the sampler announces; None: not known.
    """

    def __init__(
        self, loader: Any, plan: Stride | Keep, world: World, *, seed: int, training: bool, batches: int | None
    ) -> None:
        self.plan = plan
        self._sampler = loader.batch_sampler
        self._seed = seed
        self._training = training
        self._world = world
        self.batches = _share(batches, world, training)
        self._fetch = Fetch(loader, rank=world.rank, seed=seed, unbatched=False)
        self._workers = WorkerPool(loader, self._fetch) if loader.num_workers else None

    def epoch(
        self,
        epoch: int,
        *,
        consumed: int = 0,
        batch: int = 0,
        limit: int | None = None,
        before_fetch: BeforeFetch = None,
    ) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        count = self.batches if limit is None else limit if self.batches is None else min(limit, self.batches)
        every = self._world.size
        for part in (self._sampler, getattr(self._sampler, "sampler", None)):
            if part is not None and hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        order = _seeded(self._sampler, stream_key(self._seed, epoch, 0, "worker"))
        mine = itertools.islice(dealt(order, every, self._world.rank, fill=self._training), batch, count)
        left = None if count is None else max(0, count - batch)
        for data, last in _with_last(
            _fetched(mine, self._fetch, self._workers, epoch, batch, left, before_fetch), left
        ):
            yield data, batch_size_of(data) * every, last

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()


class ReadyBatches(Source):
    """Batches that the user's object makes itself, in its own order.

    Args:
        loader: What is iterated, anew in each epoch.
        plan: Which of its batches this rank takes.
        world: The ranks.
        training: Whether every rank must take equally many batches.
        batches: Its length; None: not known.
    """

    def __init__(self, loader: Any, plan: Any, world: World, *, training: bool, batches: int | None) -> None:
        self.plan = plan
        self._loader = loader
        self._training = training
        self._world = world
        self.batches = _share(batches, world, training)

    def epoch(
        self,
        epoch: int,
        *,
        consumed: int = 0,
        batch: int = 0,
        limit: int | None = None,
        before_fetch: BeforeFetch = None,
    ) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        count = self.batches if limit is None else limit if self.batches is None else min(limit, self.batches)
        left = None if count is None else max(0, count - batch)
        every = self._world.size
        batches: Iterable[Any] = self._loader
        if every > 1:
            batches = dealt(batches, every, self._world.rank, fill=self._training)
        batches = itertools.islice(batches, batch, count)
        if before_fetch is not None:
            batches = _told(batches, batch, before_fetch)
        size = 0
        for number, (data, last) in enumerate(_with_last(batches, left)):
            if number == 0 or last:
                size = batch_size_of(data) * every
            yield data, size, last


def _share(batches: int | None, world: World, training: bool) -> int | None:
    """How many of some batches this rank takes."""
    if batches is None:
        return None
    return -(-batches // world.size) if training else -(-max(0, batches - world.rank) // world.size)


def _fetched(
    indices: Iterator[Any],
    fetch: Fetch,
    workers: WorkerPool | None,
    epoch: int,
    first: int,
    count: int | None,
    before_fetch: BeforeFetch,
) -> Iterator[Any]:
    """The batches of these samples; `before_fetch` is told of each before this process does anything for it."""
    told = before_fetch if before_fetch is not None else _nobody
    if workers is not None:
        for number, batch in enumerate(workers.batches(indices, epoch, first, count), start=first):
            told(number)
            yield batch
        return
    for number, samples in enumerate(indices, start=first):
        told(number)
        yield fetch(samples, epoch)


def _nobody(batch: int) -> None:
    """Is told, and does nothing."""


def _told(batches: Iterable[Any], first: int, before_fetch: Callable[[int], None]) -> Iterator[Any]:
    """Says each batch's number before it is fetched."""
    iterator = iter(batches)
    for number in itertools.count(first):
        before_fetch(number)
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield batch


def _with_last(batches: Iterable[Any], left: int | None) -> Iterator[tuple[Any, bool]]:
    """Each batch with whether it is the last; one is read ahead only where their number is not known."""
    if left is None:
        return with_last(batches)
    return ((batch, number == left) for number, batch in enumerate(batches, start=1))


def _seeded(batches: Iterable[Any], key: int) -> Iterator[Any]:
    """What an iterable gives when numpy's and Python's global generators are its own, seeded by a key."""
    outside = np.random.get_state(), random.getstate()
    np.random.seed(key)
    random.seed(key)
    iterator = None
    while True:
        try:
            iterator = iter(batches) if iterator is None else iterator
            batch = next(iterator)
        except StopIteration:
            return
        finally:
            inside = np.random.get_state(), random.getstate()
            np.random.set_state(outside[0])
            random.setstate(outside[1])
        yield batch
        outside = np.random.get_state(), random.getstate()
        np.random.set_state(inside[0])
        random.setstate(inside[1])
