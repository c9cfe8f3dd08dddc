"""Source: what all sources have in common."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from lumen.core.loading import Keep, Rebuild, Stride
from lumen.core.sampling import SamplerConfig
from lumen.core.seq import dealt, with_last
from lumen.core.world import World

BeforeFetch = Callable[[int], None] | None
Item = tuple[Any, int, bool]
"""A batch as fetched, its samples over all ranks, and whether it is the epoch's last."""

State = Mapping[str, Any]
"""Plain data and arrays, as a checkpoint holds them."""


@attrs.frozen
class Span:
    """The part of an epoch that is asked for: from what was consumed on, up to a limit.

    Args:
        epoch: The epoch, which decides the order.
        consumed: Samples of it that all ranks consumed.
        batch: Batches of it that this rank took.
        limit: Most batches of the whole epoch, those taken included; None: all.
        before_fetch: Called with a batch's number before it is fetched in this process.
    """

    epoch: int = 0
    consumed: int = 0
    batch: int = 0
    limit: int | None = None
    before_fetch: BeforeFetch = None

    @property
    def left(self) -> int | None:
        """Batches up to the limit; None: no limit."""
        return None if self.limit is None else max(0, self.limit - self.batch)


class Source(abc.ABC):
    """The batches of one loader for one rank.

    Attributes:
        plan: What was decided about the loader.
        batches: Batches of a whole epoch on this rank; None: not known.
        config: How a dataset is sampled, where lumen samples it.
        dealt: Whether the ranks share one order, so that all of them end an epoch with the same batch.
    """

    plan: Rebuild | Stride | Keep
    batches: int | None = None
    config: SamplerConfig | None = None
    dealt: bool = True
    _resumed: tuple[int, int, State] | None = None

    def left(self, span: Span) -> int | None:
        """Batches left of an epoch, whatever the limit; None: not known.

        Args:
            span: Where the epoch goes on.
        """
        return None if self.batches is None else max(0, self.batches - span.batch)

    @abc.abstractmethod
    def epoch(self, span: Span) -> Generator[Item, None, None]:
        """The rest of an epoch.

        Args:
            span: Where it goes on, and where it ends.
        """

    def state(self) -> dict[str, Any]:
        """What a resume needs beside the counters, as of the batch that was handed out last."""
        return {}

    def restore(self, states: Sequence[State], span: Span, rank: int) -> None:
        """Takes back what `state` gave on each rank; the epoch then goes on from there.

        Args:
            states: Of all ranks of the run that was saved, which may have had another number of them.
            span: Where it stood.
            rank: This rank.

        Raises:
            CheckpointError: The state is another loader's, or does not fit the ranks there are now.
        """
        if self.dealt:  # all ranks read one order, so they had one state
            self._resumed = span.epoch, span.batch, states[0] if states else {}
        elif rank < len(states):
            self._resumed = span.epoch, span.batch, states[rank]

    def resumed(self, span: Span) -> State:
        """The state that was restored for this place; empty if none was.

        Args:
            span: Where an epoch goes on.
        """
        if self._resumed is not None and self._resumed[:2] == (span.epoch, span.batch):
            return self._resumed[2]
        return {}

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps of the data, to be compared on resume."""
        config = self.config
        if config is None:
            return {"length": None, "batch_size": None, "order": None}
        return {"length": config.length, "batch_size": config.batch_size, "order": config.order.fingerprint}

    def close(self) -> None:  # noqa: B027 - most start nothing
        """Ends what the source started."""


class Strided(Source):
    """Batches of an order of the loader's own, of which each rank takes every n-th.

    Args:
        plan: Which batches of the order this rank takes.
        world: The ranks.
        fill: Whether every rank must take equally many batches; the order's first ones then fill up the last round.
        announced: Batches of the whole order; None: not known.
    """

    def __init__(self, plan: Stride | Keep, world: World, *, fill: bool, announced: int | None) -> None:
        self.plan = plan
        self.dealt = isinstance(plan, Stride) or world.size == 1
        self._fill, self._announced = fill, announced
        self._every, self._rank = (plan.every, plan.offset) if isinstance(plan, Stride) else (1, 0)
        self._taken = 0
        self.batches = self.left(Span())

    def taken(self, span: Span) -> int:
        """Batches of the whole order that were taken, by all ranks; other ranks may have taken them.

        Args:
            span: Where the epoch goes on.
        """
        if span.batch == 0:
            return 0
        return int(self.resumed(span).get("batches", span.batch * self._every))

    def left(self, span: Span) -> int | None:
        """Batches left of an epoch."""
        if self._announced is None:
            return None
        left = max(0, self._announced - self.taken(span))
        return -(-left // self._every) if self._fill else -(-max(0, left - self._rank) // self._every)

    def mine(self, batches: Iterable[Any]) -> Iterator[Any]:
        """This rank's batches among those that are left.

        Args:
            batches: What is left of the whole order.
        """
        return iter(batches) if self._every == 1 else dealt(batches, self._every, self._rank, fill=self._fill)

    def state(self) -> dict[str, Any]:
        """Batches of the whole order that were taken; see `Source.state`."""
        return {"batches": self._taken}


def least(*counts: int | None) -> int | None:
    """The smallest of the counts that are known; None if none is.

    Args:
        counts: Numbers of batches; None: not known.
    """
    known = [count for count in counts if count is not None]
    return min(known) if known else None


def told(batches: Iterable[Any], first: int, before_fetch: BeforeFetch) -> Iterator[Any]:
    """The same batches; `before_fetch` is told of each before it is fetched.

    Args:
        batches: Fetched one by one as they are asked for.
        first: Number of the first.
        before_fetch: Whom to tell; None: nobody.
    """
    return iter(batches) if before_fetch is None else _telling(iter(batches), first, before_fetch)


def _telling(iterator: Iterator[Any], first: int, before_fetch: Callable[[int], None]) -> Iterator[Any]:
    for number in itertools.count(first):
        before_fetch(number)
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield batch


def with_last_of(batches: Iterable[Any], left: int | None) -> Iterator[tuple[Any, bool]]:
    """Each batch with whether it is the last; one is read ahead only where their number is not known.

    Args:
        batches: The batches.
        left: How many there are; None: not known.
    """
    if left is None:
        return with_last(batches)
    return ((batch, number == left) for number, batch in enumerate(batches, start=1))
