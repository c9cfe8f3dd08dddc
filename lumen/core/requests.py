"""Requests: what a callback or a signal asks for, and what the ranks agreed on."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NewType

import attrs

from lumen.errors import WorldError

_BETWEEN = "; "


@attrs.frozen(kw_only=True)
class Request:
    """What one rank asks for.

    Args:
        stop: End the run after this step.
        save: Write a checkpoint after this step.
        reason: Why, as a sentence; shown when the run stops.
        seconds: The rank's own training time, in seconds.
        signal: The signal that asks, which waits for no `min_epochs`; 0: none.
    """

    stop: bool = False
    save: bool = False
    reason: str = ""
    seconds: float = 0.0
    signal: int = 0


Agreed = NewType("Agreed", Request)
"""A request that every rank knows of. Only `agree` makes one, so that a rank's own wish cannot reach a plan."""

NO_REQUEST = Request()
NO_AGREED = Agreed(NO_REQUEST)


def merge(first: Request, second: Request) -> Request:
    """Both requests as one; the reasons are kept in order, each once: one that is asked for again adds nothing.

    Example:
        >>> merge(Request(stop=True, reason="patience"), Request(save=True)).save
        True
    """
    if first == NO_REQUEST:
        return second
    if second == NO_REQUEST:
        return first
    reasons = dict.fromkeys([*first.reason.split(_BETWEEN), *second.reason.split(_BETWEEN)])
    return Request(
        stop=first.stop or second.stop,
        save=first.save or second.save,
        reason=_BETWEEN.join(reason for reason in reasons if reason),
        seconds=max(first.seconds, second.seconds),
        signal=max(first.signal, second.signal),
    )


def agree(requests: Iterable[Request]) -> Agreed:
    """What all ranks do, given what each of them asked for, in the order of the ranks."""
    return Agreed(functools.reduce(merge, requests, NO_REQUEST))


def check_kinds(kinds: Mapping[int, str]) -> None:
    """Refuses that ranks do different things.

    Args:
        kinds: What each rank came to a collective for; not all need be there.

    Raises:
        WorldError: Not all for the same; the error names the first rank that differs.

    Example:
        >>> check_kinds({0: "requests", 1: "requests"})
    """
    first = min(kinds, default=0)
    for rank, kind in sorted(kinds.items()):
        if kind != kinds[first]:
            raise WorldError(
                "the ranks",
                got=f"{kinds[first]!r} on rank {first} and {kind!r} on rank {rank}",
                allowed="the same on every rank",
                do="Give every rank as many batches, and let no hook or argument depend on the rank.",
            )
