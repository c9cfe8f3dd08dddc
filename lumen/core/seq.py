"""Sequences: the few iterations that loaders and samplers share, over toolz, with types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import toolz

T = TypeVar("T")
_END: Any = object()


def with_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Each item with whether it is the last; one item is read ahead.

    Args:
        items: Any iterable.

    Example:
        >>> list(with_last("ab"))
        [('a', False), ('b', True)]
    """
    for item, following in toolz.sliding_window(2, toolz.concatv(items, [_END])):
        yield item, following is _END


def chunks(size: int, items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """The items in tuples of `size`; the last one may be shorter. No item is read before its tuple is asked for.

    Args:
        size: >= 1.
        items: Any iterable.

    Example:
        >>> list(chunks(2, "abc"))
        [('a', 'b'), ('c',)]
    """
    iterator = iter(items)
    while part := tuple(toolz.take(size, iterator)):
        yield part


def dealt(items: Iterable[T], size: int, rank: int, *, fill: bool) -> Iterator[T]:
    """The items of one rank when they are dealt round by round.

    Args:
        items: The items, in the same order on every rank.
        size: Number of ranks, >= 1.
        rank: Which one this is, 0 <= rank < size.
        fill: Whether the first items fill up a last round that is short, so that every rank gets equally many.

    Example:
        >>> list(dealt("abcde", 2, 1, fill=False)), list(dealt("abcde", 2, 1, fill=True))
        (['b', 'd'], ['b', 'd', 'a'])
    """
    head: tuple[T, ...] = ()
    for one_round in chunks(size, items):
        head = head or one_round
        if rank < len(one_round):
            yield one_round[rank]
        elif fill:
            yield head[(rank - len(one_round)) % len(head)]
