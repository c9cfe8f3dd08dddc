"""OwnOrder: a map-style dataset in the order of the user's own sampler."""

from __future__ import annotations

import collections
import copy
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from lumen.core.loading import Keep, Stride
from lumen.core.seeding import stream_key
from lumen.core.seq import with_last
from lumen.core.world import World
from lumen.errors import CheckpointError, DataError
from lumen.shell.fetching import Fetch, fetched
from lumen.shell.paddle_shim import paddle
from lumen.shell.rng import seeded
from lumen.shell.sources.base import Item, Span, State, Strided, least
from lumen.shell.streams import is_stateful
from lumen.shell.transfer import batch_size_of
from lumen.shell.workers import open_pool


def stateful_part(sampler: Any) -> Any:
    """The sampler, or the one inside it, that keeps its own place; None if neither does.

    Args:
        sampler: A batch sampler.
    """
    return next((part for part in (sampler, getattr(sampler, "sampler", None)) if is_stateful(part)), None)


_AHEAD = 8  # batches of a sampler read at once; Paddle's own loader reads ahead too


class OwnOrder(Strided):
    """A map-style dataset in the order of the user's own sampler, dealt to the ranks batch by batch.

    The sampler is run with the global generators seeded by (seed, epoch), the same on all ranks, so that all see one
    order, and a resume sees it again; to the rest of the program they are as they were. One that has
    `state_dict` and `load_state_dict` is asked for its state at each batch, and goes on from it.

    Args:
        loader: The user's DataLoader.
        plan: Which batches of the order this rank takes.
        world: The ranks.
        seed: The run's seed.
        fill: Whether every rank must take equally many batches.
        announced: Batches that the sampler announces; None: not known.
    """

    def __init__(
        self, loader: Any, plan: Stride | Keep, world: World, *, seed: int, fill: bool, announced: int | None
    ) -> None:
        super().__init__(plan, world, fill=fill, announced=announced)
        self._sampler = loader.batch_sampler
        self._keeper = stateful_part(self._sampler)
        self._seed = seed
        self._fetch = Fetch(loader, rank=world.rank, seed=seed, unbatched=False)
        self._workers = None if self._fetch.gathers else open_pool(loader, self._fetch)
        self._kept: Any = None

    def epoch(self, span: Span) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        self._taken = skip = self.taken(span)
        for part in (self._sampler, getattr(self._sampler, "sampler", None)):
            if part is not None and hasattr(part, "set_epoch"):
                part.set_epoch(span.epoch)
        kept = self.resumed(span).get("sampler")
        if kept is not None and self._keeper is not None:
            self._keeper.load_state_dict(kept)
            skip = 0
        # one that keeps its own place is asked for it at each batch
        ahead = 1 if self._keeper is not None else _AHEAD
        read = seeded(self._sampler, stream_key(self._seed, span.epoch, 0, "worker"), ahead=ahead)
        order = itertools.islice(read, skip, None)
        # what belongs to a batch when it is drawn, not when it has been fetched: workers read ahead
        drawn: collections.deque[tuple[Any, bool]] = collections.deque()
        left = least(self.left(span), span.left)
        mine = self._drawn(self.mine(order), self.left(span), span.left, drawn)
        for data in fetched(mine, self._fetch, self._workers, span.epoch, span.batch, left, span.before_fetch):
            self._kept, last = drawn.popleft()
            self._taken += self._every
            yield data, batch_size_of(data) * self._every, last

    def _drawn(
        self,
        batches: Iterator[Any],
        announced: int | None,
        limit: int | None,
        drawn: collections.deque[tuple[Any, bool]],
    ) -> Iterator[Any]:
        """The batches, up to a limit. One is read ahead: the sampler is run to its end, and its length is checked."""
        with_states = ((batch, self._snapshot()) for batch in batches)
        for number, ((batch, state), last) in enumerate(with_last(with_states), start=1):
            if announced is not None and last != (number == announced):
                raise DataError(
                    f"{type(self._sampler).__name__}.__len__",
                    got=f"{self._announced} batches, and {'fewer' if last else 'more'} came",
                    allowed="as many as it gives",
                    do="Correct it, or leave __len__ out: the end is then found by itself.",
                )
            ended = last or number == limit
            drawn.append((self._snapshot() if last else state, ended))
            yield [_plain(sample) for sample in batch]
            if ended:
                return

    def _snapshot(self) -> Any:
        return copy.deepcopy(self._keeper.state_dict()) if self._keeper is not None else None

    def state(self) -> dict[str, Any]:
        """Batches that were taken, and the sampler's own state; see `Source.state`."""
        return super().state() if self._kept is None else super().state() | {"sampler": self._kept}

    def restore(self, states: Sequence[State], span: Span, rank: int) -> None:
        """See `Source.restore`."""
        if not self.dealt and span.batch and rank >= len(states):
            raise CheckpointError(
                "the sampler's place",
                got=f"that of {len(states)} ranks",
                allowed="that of as many ranks as there are now, since the sampler itself deals to them",
                do="Resume on as many ranks, or at an epoch's end.",
            )
        super().restore(states, span, rank)

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()


def _plain(sample: Any) -> Any:
    """An index as an int where it is a number of numpy's or Paddle's (a tensor sent to a forked worker hangs it)."""
    return int(sample) if isinstance(sample, (np.integer, paddle.Tensor)) else sample
