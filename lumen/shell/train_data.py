"""TrainData: the training batches of a rank, as all ranks agree on them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from lumen.core.progress import Progress
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.rng import Streams
from lumen.shell.sources.base import BeforeFetch, Item, Source, Span, least

_log = logging.getLogger("lumen")


class TrainData:
    """The training batches of a rank.

    Args:
        source: Where they come from.
        limit: Most batches in an epoch; None: all.
        world: The ranks.
        gather: The value of every rank, by the name of what is gathered.
    """

    def __init__(
        self, source: Source, limit: int | None, world: World, gather: Callable[[str, Any], list[Any]]
    ) -> None:
        self.source = source
        self._limit = limit
        self._world = world
        self._gather = gather
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
        lengths = self._gather("length of the epoch", length)
        if len(set(lengths)) == 1:
            return length
        each = ", ".join(f"{count} on rank {rank}" for rank, count in enumerate(lengths))
        if self.source.dealt:
            raise DataError(
                "train_dataloaders",
                got=f"an epoch of {each} batches",
                do="Give every rank the same dataset and loader: lumen deals the samples to the ranks.",
            )
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
        if not self.source.dealt and self._length is None:
            return self._in_step(items)
        return self._met(items)

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
            if ended and len(ended) < len(lasts) and self._world.rank == 0:
                _log.warning("The epoch ends with the data of rank %s: what others have left is left out.", ended[0])
            if item is None or None in lasts:
                return
            data, samples, _ = item
            yield data, samples, bool(ended)
            if ended:
                return

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
