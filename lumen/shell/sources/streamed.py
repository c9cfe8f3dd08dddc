"""Streamed: an iterable dataset, dealt to ranks and workers."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from lumen.core.loading import Keep, Stride
from lumen.core.sampling import Tail
from lumen.core.world import World
from lumen.errors import CheckpointError
from lumen.shell.packing import Opaque
from lumen.shell.sources.base import Item, Source, Span, State, told, with_last_of
from lumen.shell.streams import WHOLE, Ended, StreamReader
from lumen.shell.workers import open_pool


class Streamed(Source):
    """An iterable dataset, dealt to ranks and workers: no sample twice, and none left out.

    Args:
        loader: The user's DataLoader.
        plan: Whether the ranks take turns.
        world: The ranks.
        seed: The run's seed.
        tail: What happens to a last batch that is not full.
        samples: What the dataset announces; None: nothing. It may give more or less.
    """

    def __init__(
        self, loader: Any, plan: Stride | Keep, world: World, *, seed: int, tail: Tail, samples: int | None
    ) -> None:
        self.plan = plan
        self.dealt = isinstance(plan, Stride) or world.size == 1
        among = world if isinstance(plan, Stride) else World.single()
        self._reader = StreamReader(loader, among, rank=world.rank, seed=seed, tail=tail)
        self._workers = open_pool(loader, self._reader)
        self._count = loader.num_workers
        self._places: dict[str, Any] = {}
        self._turn = self._passes = 0
        sampler = loader.batch_sampler
        whole = among.size * (1 if sampler is None else sampler.batch_size)
        self.batches = None if samples is None else samples // whole if tail is Tail.DROP else -(-samples // whole)

    def left(self, span: Span) -> int | None:
        """None: a stream ends when it ends."""
        return None

    def epoch(self, span: Span) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        self._places = dict(self.resumed(span).get("streams", {}))
        if span.batch and not self._places:
            self._places = {WHOLE: {"position": span.consumed}}
        self._turn = int(self.resumed(span).get("turn", 0))
        self._reader.starts = {span.epoch: dict(self._places)} if span.batch else {}
        read = self._reader.in_process(span.epoch) if self._workers is None else self._from_workers(span)
        batches = told(itertools.islice(read, span.left), span.batch, span.before_fetch)
        for (data, samples, places), last in with_last_of(batches, None):
            self._places |= places
            self._turn = 0 if WHOLE in places else int(next(iter(places))) + 1
            yield data, samples, last

    def _from_workers(self, span: Span) -> Iterator[tuple[Any, int, Mapping[str, Any]]]:
        assert self._workers is not None
        ended: set[str] = set()
        over = False

        self._passes += 1
        first = self._turn

        def orders() -> Iterator[tuple[int, int]]:
            # the first batch of a resume is that of the worker whose turn it was
            numbers = itertools.chain([-1] * (first % self._count), itertools.count())
            while not over:
                yield self._passes, next(numbers)

        for made in self._workers.batches(orders(), span.epoch, span.batch, None):
            if not isinstance(made, Opaque):
                if not over:
                    data, samples, places = made
                    yield data, samples, places.value
                continue
            end: Ended | None = made.value
            if end is not None:
                ended.add(end.stream)
                over = over or end.stream == WHOLE or len(ended) == self._count

    def state(self) -> dict[str, Any]:
        """Where each stream stands; see `Source.state`."""
        return {"streams": self._places, "workers": self._count, "turn": self._turn}

    def restore(self, states: Sequence[State], span: Span, rank: int) -> None:
        """See `Source.restore`."""
        super().restore(states, span, rank)
        saved = self.resumed(span)
        split = saved.get("streams") and WHOLE not in saved["streams"]
        if span.batch and split and saved["workers"] != self._count:
            raise CheckpointError(
                "num_workers",
                got=self._count,
                allowed=f"{saved['workers']}, as when the checkpoint was saved: the dataset splits itself over workers",
                do="Resume with as many workers, or at an epoch's end.",
            )

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()
