"""Processes: which end with which, so that nothing is left of a job however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from lumen.shell.signals import STOP_SIGNALS

_PR_SET_PDEATHSIG = 1


_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def die_with_parent() -> None:
    """Lets this process be killed when its parent ends, killed or not; on Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve_parent(parent: int, *, tied: bool) -> None:
    """Makes the present process, a data worker, end with its parent, and leave it to the parent what signals mean.

    A signal to a whole group of processes (Ctrl-C is another matter, a job's SIGTERM, a terminal that goes away) would
    else end the workers of a run that is about to save.

    Args:
        parent: The process that started this one.
        tied: Whether to end with it. The kernel ends this process with the thread that forked it: only where that was
            the main one do thread and process end together.
    """
    for name in STOP_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    if _LIBC is None or not tied:
        return
    own = signal.SIGRTMIN + 3  # one that nobody sends to groups of processes

    def leave(_number: int, _frame: FrameType | None) -> None:
        remove_shared_memory(os.getpid())
        os._exit(1)

    signal.signal(own, leave)
    _LIBC.prctl(_PR_SET_PDEATHSIG, own)
    if os.getppid() != parent:
        leave(own, None)


def remove_shared_memory(worker: int) -> None:
    """Removes what a data worker has left in shared memory: Paddle names each piece after the process that made it."""
    for left in Path("/dev/shm").glob(f"paddle_{worker}_*"):  # noqa: S108 - where Paddle puts it
        left.unlink(missing_ok=True)


def children(pid: int) -> dict[int, str]:
    """The processes that a process has started and that still are, and when each began; on Linux only."""
    found: set[int] = set()
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, listed.read_text().split()))
    return {one: began for one in found if (began := _began(one))}


def end_leftovers(processes: Mapping[int, str]) -> None:
    """Kills those that still run, and removes what dead ones left in shared memory.

    Args:
        processes: For each number when the process began: another one may have it by now.
    """
    for pid, began in processes.items():
        if _began(pid) == began:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        remove_shared_memory(pid)


def _began(pid: int) -> str:
    """When a process began, in the kernel's ticks; "" if it runs no more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
