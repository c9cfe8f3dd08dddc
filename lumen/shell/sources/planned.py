"""Planned: a map-style dataset sampled by lumen."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import Any

import attrs

from lumen.core.loading import Rebuild
from lumen.core.orders.bucketed import Cut
from lumen.core.records import from_record, to_record
from lumen.core.sampling import Cursor, Dealt, EpochPlan, SamplerConfig, cut_epoch, plan_epoch, same_dealing
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.fetching import Fetch, fetched
from lumen.shell.sources.base import Item, Source, Span, State, least
from lumen.shell.workers import open_pool


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
        self.dealt = plan.split
        self._world = world
        self._dataset = loader.dataset
        self._cuts: tuple[Cut, ...] = ()
        self._consumed = 0
        self._planned: tuple[Cursor, SamplerConfig, EpochPlan] | None = None
        self.batches = self._plan(Span()).batches
        self._fetch = Fetch(loader, rank=rank, seed=self.config.seed, unbatched=unbatched)
        self._workers = None if self._fetch.gathers else open_pool(loader, self._fetch)

    def _plan(self, span: Span) -> EpochPlan:
        """What is left of an epoch; kept, since an order may be long to make."""
        if span.consumed == 0:
            self._cuts = ()
            self._measure()
        cursor = Cursor(epoch=span.epoch, consumed=span.consumed, cuts=self._cuts)
        if self._planned is None or self._planned[:2] != (cursor, self.config):
            self._planned = cursor, self.config, plan_epoch(self.config, self._world, cursor)
        return self._planned[2]

    def _measure(self) -> None:
        """A dataset may be of another length in each epoch."""
        length = len(self._dataset)
        if length == self.config.length:
            return
        if length == 0:
            raise DataError("the dataset", got="no sample any more", allowed=f"{self.config.length} samples, or others")
        self.config = attrs.evolve(self.config, length=length)

    def left(self, span: Span) -> int:
        """Batches left of an epoch."""
        return self._plan(span).batches

    def epoch(self, span: Span) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        plan = self._plan(span)
        count = least(plan.batches, span.left) or 0
        indices = itertools.islice(iter(plan), count)
        whole = self.config.batch_size * self._world.size if isinstance(plan, Dealt) else None
        self._consumed = span.consumed
        batches = fetched(indices, self._fetch, self._workers, span.epoch, span.batch, count, span.before_fetch)
        for index, data in enumerate(batches):
            last = index == count - 1
            samples = plan.samples(index) if last or whole is None else whole
            self._consumed += samples
            yield data, samples, last

    def state(self) -> dict[str, Any]:
        """How the epoch was dealt; see `Source.state`."""
        cuts = cut_epoch(self.config, self._world, self._cuts, self._consumed)
        return {"cuts": [to_record(cut) for cut in cuts]} if cuts else {}

    def restore(self, states: Sequence[State], span: Span, rank: int) -> None:
        """See `Source.restore`."""
        cuts = tuple(from_record(cut, Cut) for cut in (states[0] if states else {}).get("cuts", ()))
        now = cut_epoch(self.config, self._world, (), span.consumed)
        self._cuts = cuts[:-1] if cuts and now and same_dealing(cuts[-1], now[0]) else cuts

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()
