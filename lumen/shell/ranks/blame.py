"""Blame: what an exception says of a rank's failure: its kind, its words, and the user's method that it came from."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import attrs

from lumen.core.faults import Failure, Kind, Position
from lumen.errors import ConnectError, RankError

_STEPS = ("training_step", "validation_step", "test_step", "predict_step", "optimizer_step", "configure_optimizers")
_OTHER_HOOKS = ("setup", "teardown", "prepare_data")


def innermost_hook(names: Sequence[str]) -> str:
    """The innermost hook or step among the functions of a stack."""
    found = (name for name in reversed(names) if name.startswith("on_") or name in _STEPS or name in _OTHER_HOOKS)
    return next(found, "")


def _message(error: BaseException) -> str:
    """An exception in one line."""
    return "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()[0]


def _kind(error: BaseException, over: Failure | None) -> Kind:
    """What sort of failure an exception is."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupt"
    if isinstance(error, SystemExit):
        return "exit"
    if isinstance(error, ConnectError):
        return "connect"
    if isinstance(error, RankError) or over is not None:
        return "peer"
    frames = traceback.extract_tb(error.__traceback__)
    inside = bool(frames) and "/paddle/distributed/" in frames[-1].filename.replace("\\", "/")
    words = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "TIMEOUT", "pair closure")
    if type(error) in (RuntimeError, SystemError, OSError):
        return "peer" if inside or any(word in str(error) for word in words) else "error"
    return "error"


def failure_of(error: BaseException, rank: int, position: Position, over: Failure | None) -> Failure:
    """An exception as a failure.

    Args:
        error: The exception.
        rank: Whose it is.
        position: Where the rank's run stands.
        over: The failure of another rank that this one was told of before.
    """
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return Failure(
        rank=rank,
        kind=_kind(error, over),
        message=_message(error),
        traceback="".join(traceback.format_exception(type(error), error, error.__traceback__)),
        position=attrs.evolve(position, hook=innermost_hook(names)) if position.stage else position,
    )


def rank_error(what: str, failure: Failure) -> RankError:
    """The error of a rank that cannot go on without another one.

    Args:
        what: What it was about to do.
        failure: The other's.
    """
    where = f" ({failure.position})" if failure.position.stage else ""
    if failure.rank < 0:  # not of one rank
        return RankError(what, got=failure.message)
    return RankError(what, got=f"rank {failure.rank} has failed{where}: {failure.message}")
