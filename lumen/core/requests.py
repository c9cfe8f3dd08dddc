"""Requests: what a callback or a signal asks for, and what the ranks agreed on."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NewType

import attrs


@attrs.frozen(kw_only=True)
class Request:
    """What one rank asks for.

    Args:
        stop: End the run after this step.
        save: Write a checkpoint after this step.
        reason: Why, as a sentence; shown when the run stops.
        seconds: The rank's own training time, in seconds.
    """

    stop: bool = False
    save: bool = False
    reason: str = ""
    seconds: float = 0.0


Agreed = NewType("Agreed", Request)
"""A request that every rank knows of. Only `agree` makes one, so that a rank's own wish cannot reach a plan."""

NO_REQUEST = Request()
NO_AGREED = Agreed(NO_REQUEST)


def merge(first: Request, second: Request) -> Request:
    """Both requests as one; the reasons are kept in order.

    Example:
        >>> merge(Request(stop=True, reason="patience"), Request(save=True)).save
        True
    """
    if first == NO_REQUEST:
        return second
    if second == NO_REQUEST:
        return first
    reasons = dict.fromkeys(reason for reason in (first.reason, second.reason) if reason)
    return Request(
        stop=first.stop or second.stop,
        save=first.save or second.save,
        reason="; ".join(reasons),
        seconds=max(first.seconds, second.seconds),
    )


def agree(requests: Iterable[Request]) -> Agreed:
    """What all ranks do, given what each of them asked for, in the order of the ranks."""
    return Agreed(functools.reduce(merge, requests, NO_REQUEST))
