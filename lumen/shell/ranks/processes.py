"""Processes: which end with which, so that nothing is left of a job however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1


_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def die_with_parent() -> None:
    """Lets this process be killed when its parent ends, killed or not; on Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def take_workers_along() -> None:
    """Lets the processes that this one forks, such as data workers, be killed when it ends.

    The kernel sends the signal when the thread that forked ends: a fork in a thread that is not the main one is left
    alone.
    """
    in_main = [False]

    def look() -> None:
        in_main[0] = threading.current_thread() is threading.main_thread()

    def follow() -> None:
        if in_main[0]:
            die_with_parent()

    os.register_at_fork(before=look, after_in_child=follow)


def children(pid: int) -> dict[int, str]:
    """The processes that a process has started and that still are, and when each began; on Linux only."""
    found: set[int] = set()
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, listed.read_text().split()))
    return {one: began for one in found if (began := _began(one))}


def end_leftovers(processes: Mapping[int, str]) -> None:
    """Kills those that still run, and removes what dead ones left in shared memory.

    Paddle names each piece of shared memory after the data worker that made it.

    Args:
        processes: For each number when the process began: another one may have it by now.
    """
    for pid, began in processes.items():
        if _began(pid) == began:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for left in Path("/dev/shm").glob(f"paddle_{pid}_*"):  # noqa: S108 - where Paddle puts it
            left.unlink(missing_ok=True)


def _began(pid: int) -> str:
    """When a process began, in the kernel's ticks; "" if it runs no more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
