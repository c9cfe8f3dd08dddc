"""Streaming: what each rank takes of data that can only be read in order.

The law is that of `lumen.core.sampling`: the stream is cut into global batches of ``world.size * batch_size`` samples,
of which rank r takes every ``world.size``-th from r on. Every rank reads the same stream, so all know where it ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs

from lumen.core.sampling import Tail
from lumen.core.world import World


@attrs.frozen
class Chunk:
    """One global batch of a stream, as a rank sees it.

    Args:
        samples: Those of this rank.
        total: Samples over all ranks; padding does not count.
        position: Samples of the stream up to the end of it.
    """

    samples: list[Any]
    total: int
    position: int


def deal_stream(
    stream: Iterator[Any], world: World, *, batch_size: int, tail: Tail, position: int = 0
) -> Iterator[Chunk]:
    """This rank's share of a stream, batch by batch.

    A last global batch that is short is padded from its own head, so that nothing before it need be kept.

    Args:
        stream: The samples, from `position` on.
        world: The ranks, and which one this is.
        batch_size: Samples per rank and batch, >= 1.
        tail: What happens to a last global batch that is not full; with KEEP a rank may get an empty share.
        position: Samples of the stream that were read before.

    Example:
        >>> two = World(size=2, rank=1, local_size=2, local_rank=1, node=0)
        >>> [chunk.samples for chunk in deal_stream(iter("abcde"), two, batch_size=2, tail=Tail.PAD)]
        [['b', 'd'], ['e']]
    """
    whole = world.size * batch_size
    while True:
        mine: list[Any] = []
        head: list[Any] = []
        count = 0
        for count, sample in enumerate(itertools.islice(stream, whole), start=1):
            if count <= world.size:
                head.append(sample)
            if (count - 1) % world.size == world.rank:
                mine.append(sample)
        short = count < whole
        if count == 0 or (short and tail is Tail.DROP):
            return
        if short and tail is Tail.PAD and len(mine) * world.size < count + -count % world.size:
            mine.append(head[((count - 1) // world.size * world.size + world.rank) % count])
        position += count
        yield Chunk(mine, count, position)
        if short:
            return
