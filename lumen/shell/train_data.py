"""TrainData: the training batches of a rank, as all ranks agree on them."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from lumen.core.progress import Progress
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.rng import Streams
from lumen.shell.sources.base import BeforeFetch, Item, Source, Span, least

_log = logging.getLogger("lumen")
_MOST_COUNTED = 100  # batches that a rank reads, of what is left out, to tell how many: a stream may have no end


class TrainData:
    """The training batches of a rank.

    Args:
        source: Where they come from.
        limit: Most batches in an epoch; None: all.
        world: The ranks.
        gather: The value of every rank, by the name of what is gathered.
        pad: Whether a rank whose data ends before that of others repeats its first batch; else the epoch ends there.
    """

    def __init__(
        self, source: Source, limit: int | None, world: World, gather: Callable[[str, Any], list[Any]], *, pad: bool
    ) -> None:
        self.source = source
        self._limit = limit
        self._world = world
        self._gather = gather
        self._pad = pad
        self._length: int | None = None

    def length(self, progress: Progress) -> int | None:
        """Batches of the present epoch; None: not known. All ranks call it at an epoch's start.

        Args:
            progress: Where the run stands.

        Raises:
            DataError: The ranks have not the same data.
        """
        left = self.source.left(_span(progress))
        self._length = self._agreed(least(self._limit, None if left is None else progress.batch + left))
        return self._length

    def _agreed(self, length: int | None) -> int | None:
        if self._world.size == 1:
            return length
        samples = str(self.source.facts()["length"])
        gathered = self._gather("length of the epoch", (length, samples))
        lengths = [count for count, _ in gathered]
        if len(set(gathered if self.source.dealt else lengths)) == 1:
            return length
        if self.source.dealt:
            each = ", ".join(f"{n} batches of {m} samples on rank {rank}" for rank, (n, m) in enumerate(gathered))
            raise DataError(
                "train_dataloaders",
                got=f"an epoch of {each}",
                do="Give every rank the same dataset and loader: lumen deals the samples to the ranks.",
            )
        each = ", ".join(f"{count} on rank {rank}" for rank, count in enumerate(lengths))
        if self._pad and None not in lengths:
            return max(lengths)
        if self._pad:
            return None
        if self._world.rank == 0:
            _log.warning("The epoch ends with the rank that has the fewest batches: %s.", each)
        return least(*lengths)

    def batches(self, progress: Progress, streams: Streams) -> Generator[Item, None, None]:
        """What is left of the present epoch, as fetched.

        Args:
            progress: Where the run stands.
            streams: The run's randomness, told of each batch where it wants to be.
        """
        epoch = progress.epoch
        before = (lambda batch: streams.begin_batch(epoch, batch)) if streams.per_batch else None
        items = self.source.epoch(_span(progress, limit=self._length, before_fetch=before))
        if self._world.size == 1:
            return items
        if self.source.dealt:
            return self._met(items)
        if self._pad:
            return self._padded(items, progress)
        return self._in_step(items) if self._length is None else self._met(items)

    def _met(self, items: Generator[Item, None, None]) -> Generator[Item, None, None]:
        """Waits until every rank has its first batch: gloo gives up after 30 s in the first step's all-reduce."""
        with contextlib.closing(items):
            first = next(items, None)
            self._gather("first batch", None)
            if first is not None:
                yield first
                yield from items

    def _in_step(self, items: Generator[Item, None, None]) -> Generator[Item, None, None]:
        """Ends the epoch on all ranks with the first of them; nobody knows beforehand which that is."""
        while True:
            item = next(items, None)
            lasts = self._gather("another batch", None if item is None else item[2])
            ended = [rank for rank, last in enumerate(lasts) if last is not False]
            taken = item is not None and None not in lasts
            if ended and (len(ended) < len(lasts) or not taken):
                # before the last step: a checkpoint there has the state in which the next epoch begins
                self._tell_left(ended[0], items, 0 if taken or item is None else 1)
            if item is not None and taken:
                data, samples, _ = item
                yield data, samples, bool(ended)
            if ended:
                return

    def _tell_left(self, first: int, items: Iterator[Item], left: int) -> None:
        """Tells how many batches are left out; the ranks go on to the next epoch together."""
        left += sum(1 for _ in itertools.islice(items, _MOST_COUNTED))
        each = self._gather("batches left out", left)
        if self._world.rank == 0 and any(each):
            words = [
                f"{'at least ' if count >= _MOST_COUNTED else ''}{count} of rank {rank}"
                for rank, count in enumerate(each)
                if count
            ]
            _log.warning("The epoch ends with the data of rank %s; batches left out: %s.", first, ", ".join(words))

    def _padded(self, items: Generator[Item, None, None], progress: Progress) -> Generator[Item, None, None]:
        """Ends the epoch on all ranks with the last of them; one that has no more repeats its first batch."""
        first: Item | None = None
        with contextlib.closing(items):
            for number in itertools.count(progress.batch + 1):
                item = next(items, None)
                if number == 1:
                    first = item
                over = number == self._length
                lasts = self._gather("another batch", None if item is None else item[2] or over)
                if all(last is None for last in lasts) or (number == 1 and None in lasts):
                    return
                if item is None:
                    item = first = first or self._first(progress)
                data, samples, _ = item
                over = over or all(last is not False for last in lasts)
                yield data, samples, over
                if over:
                    return

    def _first(self, progress: Progress) -> Item:
        """The first batch of the epoch, read again by a run that goes on behind the end of its data."""
        with contextlib.closing(self.source.epoch(Span(progress.epoch, limit=1))) as items:
            item = next(items, None)
        if item is None:
            raise DataError(
                "train_dataloaders",
                got=f"no batch in epoch {progress.epoch} on rank {self._world.rank}",
                allowed="at least one, to repeat where uneven_data='pad'",
            )
        return item

    def restore(self, states: Sequence[Mapping[str, Any]], progress: Progress) -> None:
        """Takes back what the source's `state` gave on each rank.

        Args:
            states: Of all ranks of the run that was saved.
            progress: Where it stood.

        Raises:
            CheckpointError: They are another loader's, or do not fit the ranks there are now.
        """
        self.source.restore(states, _span(progress), self._world.rank)


def _span(progress: Progress, *, limit: int | None = None, before_fetch: BeforeFetch = None) -> Span:
    """What is left of the present epoch."""
    return Span(progress.epoch, progress.consumed, progress.batch, limit, before_fetch)
