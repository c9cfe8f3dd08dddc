"""Standstill: ranks that do not get on, and the one that is to blame, as far as one can see."""

from __future__ import annotations

from collections.abc import Sequence

from lumen.core.faults import Failure
from lumen.shell.ranks.standing import Rank

SILENT = 3.0  # seconds after which a rank that says nothing is not answering: it says something each second
_APART = 2.0  # seconds that a rank waits for one that has gone on without it, and so will never come


def apart(ranks: Sequence[Rank], now: float) -> Failure | None:
    """The failure of ranks of which one has begun a batch behind a meeting at which another waits: it waits in vain.

    The one that went on is in a collective of Paddle's, in which it waits for the other: gloo ends it after 30 s, with
    no word on why.

    Args:
        ranks: All ranks.
        now: The time, in seconds.
    """
    training = [(n, rank) for n, rank in enumerate(ranks) if rank.inside and rank.position.stage == "fit"]
    for number, rank in training:
        if rank.waiting is None or rank.moved > now - _APART:
            continue
        ahead = [(n, one) for n, one in training if one.waiting is None and one.position.begun > rank.position.begun]
        if ahead:
            other, one = ahead[0]
            words = (
                f"lumen.errors.WorldError: the ranks do different things: rank {number} waits for "
                f"{rank.waiting[1]!r} after {rank.position.begun} batches, while rank {other} trains on batch "
                f"{one.position.begun}. Give all ranks the same data, intervals and callbacks."
            )
            return Failure(rank=-1, kind="apart", message=words, time=now)
    return None


def standstill(ranks: Sequence[Rank], since: float, limit: float, now: float) -> Failure:
    """The failure of ranks that make no progress: of one that does not answer, else of one that waits for nobody.

    Args:
        ranks: All ranks.
        since: When they were found to stand still.
        limit: After how many seconds that was.
        now: The time, in seconds.
    """

    def rating(number: int) -> tuple[bool, bool, bool, float]:
        rank = ranks[number]
        return now - rank.heard > SILENT, rank.waiting is None, not rank.in_paddle, now - rank.moved

    suspect = max(range(len(ranks)), key=rating)
    rank = ranks[suspect]
    mute = now - rank.heard > SILENT
    says = "it does not answer (stopped, or its interpreter is blocked)" if mute else "it stands still"
    if not rank.session:
        says = "it never came to the others"
    words = f"no progress for {since - rank.moved:.0f} s: {says} (hang_timeout={limit:g} s)"
    text = f"{words}\n{rank.stack}" if rank.stack else ""
    return Failure(rank=suspect, kind="hang", message=words, traceback=text, position=rank.position, time=now)
