"""ReadyBatches: batches that the user's object makes itself."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

from lumen.core.loading import Keep, Stride
from lumen.core.seeding import stream_key
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.rng import seeded
from lumen.shell.sources.base import Item, Span, Strided, least, told, with_last_of
from lumen.shell.transfer import batch_size_of

_PROBE = 2  # batches after which an iterable that drew no random number is taken for one that never does


class ReadyBatches(Strided):
    """Batches that the user's object makes itself, in its own order.

    It is run with the global generators seeded by (seed, epoch), the same on all ranks, so that all see one order, and
    a resume sees it again; to the rest of the program they are as they were.

    Args:
        loader: What is iterated, anew in each epoch.
        plan: Which of its batches this rank takes.
        world: The ranks.
        seed: The run's seed.
        fill: Whether every rank must take equally many batches.
        announced: Its length; None: not known.
    """

    def __init__(
        self, loader: Any, plan: Stride | Keep, world: World, *, seed: int, fill: bool, announced: int | None
    ) -> None:
        super().__init__(plan, world, fill=fill, announced=announced)
        self._loader, self._seed = loader, seed

    def epoch(self, span: Span) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        self._taken = self.taken(span)
        left = least(self.left(span), span.left)
        batches = self._loader
        if not isinstance(batches, (list, tuple)):
            batches = seeded(batches, stream_key(self._seed, span.epoch, 0, "worker"), probe=_PROBE)
        rest = itertools.islice(batches, self._taken, None)
        mine = told(itertools.islice(self.mine(rest), left), span.batch, span.before_fetch)
        number = 0
        for data, last in with_last_of(mine, left):
            number += 1
            self._taken += self._every
            yield data, batch_size_of(data) * self._every, last
        if left is not None and number < left and number:
            raise DataError(
                f"{type(self._loader).__name__}.__len__",
                got=f"{self._announced} batches, and fewer came",
                allowed="as many as it gives",
                do="Correct it, or leave __len__ out: the end is then found by itself.",
            )
