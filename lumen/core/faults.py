"""Faults: where ranks stood, which of them failed first, and whether starting again may help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

Kind = Literal["error", "exit", "lost", "hang", "apart", "connect", "interrupt", "peer"]
_OWN = (
    "error",
    "exit",
    "hang",
    "apart",
    "connect",
    "interrupt",
)  # a rank's own words; "lost" may only be the silence after them


@attrs.frozen(kw_only=True)
class Position:
    """Where a rank stands in a run.

    Args:
        stage: The loop: "fit", "validate", …; "" outside of one.
        epoch: Number of the epoch, from 0.
        batch: Batch of the epoch; in an evaluation, of its loader.
        step: Optimizer steps done.
        begun: Training batches that this run has begun.
        hook: The user's method that runs: a step or a hook; "" if none does.

    Example:
        >>> print(Position(stage="fit", epoch=1, batch=7, step=39, hook="training_step"))
        fit, epoch 1, batch 7, step 39, in training_step
    """

    stage: str = ""
    epoch: int = 0
    batch: int = 0
    step: int = 0
    begun: int = 0
    hook: str = ""

    def __str__(self) -> str:
        where = f"{self.stage}, epoch {self.epoch}, batch {self.batch}, step {self.step}" if self.stage else ""
        hook = f"in {self.hook}" if self.hook else ""
        return ", ".join(part for part in (where, hook) if part) or "outside of a run"


@attrs.frozen(kw_only=True)
class Failure:
    """How a rank failed.

    Args:
        rank: The rank.
        kind: "error" (an exception), "exit" (it left in the middle of a run), "lost" (it died without a word), "hang"
            (it stood still), "apart" (the ranks do different things), "connect" (the ranks did not find each other),
            "interrupt" (Ctrl-C), or "peer" (an exception that the end of another rank caused).
        message: In one line.
        traceback: In full; "" if there is none.
        position: Where it stood.
        time: Seconds on the clock of whoever collects the failures.
    """

    rank: int
    kind: Kind
    message: str = ""
    traceback: str = ""
    position: Position = Position()
    time: float = 0.0

    @property
    def words(self) -> str:
        """The traceback, or the message where there is none."""
        return self.traceback.rstrip() or self.message


def to_message(failure: Failure) -> dict[str, Any]:
    """A failure as plain data: JSON types only."""
    return attrs.asdict(failure)


def from_message(message: Mapping[str, Any]) -> Failure:
    """What `to_message` was given.

    Example:
        >>> from_message(to_message(Failure(rank=1, kind="lost"))).rank
        1
    """
    return Failure(**{**message, "position": Position(**message["position"])})


def first_failure(failures: Iterable[Failure]) -> Failure | None:
    """The failure that all others follow from; None if there is none.

    An exception that another rank's end caused ("peer") is never the first where there is another kind. A rank that
    died without a word comes after those that said why at about the same time, since the end of a process that
    raised is also seen as a loss.

    Args:
        failures: In any order; several of one rank are possible.

    Example:
        >>> first_failure([Failure(rank=0, kind="peer", time=1.0), Failure(rank=1, kind="lost", time=1.1)]).rank
        1
    """
    known = sorted(failures, key=lambda failure: failure.time)
    said = {failure.rank for failure in known if failure.kind in _OWN}
    causes = [one for one in known if one.kind != "peer" and (one.kind != "lost" or one.rank not in said)]
    return next(iter(causes or known), None)


def restart_refusal(history: Sequence[Failure], limit: int) -> str:
    """Why the ranks are not started again; "" if they are.

    Args:
        history: The first failure of each attempt so far, in order; not empty.
        limit: Most restarts, >= 0.

    Example:
        >>> restart_refusal([Failure(rank=1, kind="lost")], 3)
        ''
        >>> error = Failure(rank=1, kind="error", message="ValueError: bad sample")
        >>> restart_refusal([error, error], 3)
        'the same error at the same step twice'
    """
    last = history[-1]
    if last.kind == "interrupt":
        return "it was interrupted"
    if last.kind == "apart":
        return "the ranks do different things"
    if last.kind == "error" and len(history) > 1:
        before = history[-2]
        if before.kind == "error" and (before.message, before.position.step) == (last.message, last.position.step):
            return "the same error at the same step twice"
    if len(history) > limit:
        return f"max_restarts={limit}" if limit else "max_restarts is 0"
    return ""


def describe_stands(stands: Mapping[int, tuple[str, str]]) -> list[str]:
    """Where each rank stood, as lines; ranks that stood at one place are named together.

    Args:
        stands: For each rank what happened to it and where, in one line, and its Python stack or "".

    Example:
        >>> describe_stands({0: ("waited", ""), 1: ("waited", ""), 2: ("raised", "  File ...")})
        ['lumen: ranks 0, 1: waited', 'lumen: rank 2: raised', '  File ...']
    """
    together: dict[tuple[str, str], list[int]] = {}
    for rank, stand in sorted(stands.items()):
        together.setdefault(stand, []).append(rank)
    lines = []
    for (where, stack), ranks in together.items():
        lines.append(f"lumen: rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {where}")
        lines += stack.rstrip().splitlines()
    return lines
