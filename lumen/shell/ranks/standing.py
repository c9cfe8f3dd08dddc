"""Standing: one rank as the coordinator knows it, and how all of them are described."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import attrs

from lumen.core.faults import Failure, Position, describe_stands

ENDINGS = ("ended with", "was ended")  # how the end of a process is worded


@attrs.define
class Rank:
    """One rank as the coordinator knows it."""

    session: int = 0  # number of the run that it is or was in, from 1
    inside: bool = False
    gone: bool = False
    heard: float = 0.0
    moved: float = 0.0  # when it was last seen to get on
    position: Position = attrs.field(factory=Position)
    stack: str = ""
    failure: Failure | None = None  # of the present session, or its end
    told: bool = False  # that it must give up
    code: int | None = None  # how its process ended, if anybody knows
    waiting: tuple[int, str, bytes] | None = None  # the number, the kind and the value of a meeting
    settling: bool = False  # it failed, its hooks were called, and it waits for the others to get as far

    @property
    def in_paddle(self) -> bool:
        """Whether its main thread is in a call of Paddle, a collective perhaps."""
        files = [line for line in self.stack.splitlines() if line.lstrip().startswith("File ")]
        return bool(files) and "/paddle/" in files[-1]


def describe(ranks: Sequence[Rank], first: Failure | None) -> str:
    """Where each rank stood and, last, the words of the one that failed first.

    Args:
        ranks: All ranks.
        first: The failure that the others follow from; None: there is none.
    """
    if first is None:
        return ""
    lines = describe_stands({number: _stand(rank) for number, rank in enumerate(ranks) if number != first.rank})
    seen = "last seen in " if first.kind in ("lost", "hang") or first.message.startswith(ENDINGS) else "in "
    where = f", {seen}{first.position}" if first.position.stage else ""
    if first.rank < 0:
        return "\n".join([*lines, first.words, ""])
    ended = first.message.startswith(ENDINGS)
    head = f"lumen: rank {first.rank} failed first{where}:" + (f" it {first.message}" if ended else "")
    words = [first.traceback.rstrip()] if first.traceback or ended else [first.message]
    return "\n".join([*lines, head, *filter(None, words), ""])


def _stand(rank: Rank) -> tuple[str, str]:
    """Where a rank stood, in one line, and its stack or traceback."""
    failure = rank.failure
    if failure is None:
        return f"{rank.position}", rank.stack
    if failure.kind == "lost" and rank.code != 0:
        return f"{failure.message}; last seen {rank.position}", rank.stack
    if rank.code == 0:
        return "ended before that, with exit code 0", ""
    own = not failure.message.startswith(ENDINGS)
    return f"{failure.position}: {failure.message}", rank.stack or failure.traceback * own


def signal_name(number: int) -> str:
    """A signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
