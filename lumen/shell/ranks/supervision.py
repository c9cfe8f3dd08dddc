"""Supervision: what a rank and the program that started it know of each other, as environment variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from lumen.shell.ranks.member import Member
from lumen.shell.ranks.processes import die_with_parent

_PID = "LUMEN_SUPERVISOR_PID"
_ADDRESS = "LUMEN_COORDINATOR"
_TOKEN = "LUMEN_TOKEN"  # noqa: S105 - a variable's name
_RESUME = "LUMEN_RESUME"
_QUIET = "LUMEN_QUIET"


def variables(port: int, token: str, saved: Mapping[int, str], *, quiet: bool) -> dict[str, str]:
    """What the present process, as a supervisor, tells a rank.

    Args:
        port: Where the coordinator listens on this machine.
        token: What it wants to be shown.
        saved: For each fit of the program, by its number, the checkpoint to go on from.
        quiet: Whether the rank leaves it to the supervisor to show its traceback.
    """
    return {
        _PID: str(os.getpid()),
        _ADDRESS: f"127.0.0.1:{port}",
        _TOKEN: token,
        _RESUME: json.dumps(dict(saved)),
        _QUIET: "1" if quiet else "",
    }


def is_supervised() -> bool:
    """Whether lumen started this process as a rank; a program that a rank starts in turn is none."""
    pid = os.environ.get(_PID, "")
    return pid.isdigit() and int(pid) == os.getppid()


def is_quiet() -> bool:
    """Whether the supervisor shows this rank's traceback."""
    return is_supervised() and bool(os.environ.get(_QUIET))


def resume_path(fit: int) -> str | None:
    """The checkpoint from which a fit goes on after all ranks were started again.

    Args:
        fit: Number of the fit in this program, from 0.
    """
    found = json.loads(os.environ.get(_RESUME) or "{}") if is_supervised() else {}
    return found.get(str(fit))


def join(rank: int) -> Member | None:
    """Connects this rank with the supervisor that started it; None where lumen started no ranks.

    A rank that Paddle's launcher started is tied to that launcher, which leaves its ranks behind when it is killed.

    Args:
        rank: This rank.
    """
    if is_supervised():
        host, _, port = os.environ[_ADDRESS].rpartition(":")
        return Member((host, int(port)), os.environ[_TOKEN], rank, supervised=True)
    if _paddle_launched():
        die_with_parent()
    return None


def _paddle_launched() -> bool:
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_text()
    except OSError:
        return False
    return "paddle.distributed.launch" in command or "paddle/distributed/launch" in command
