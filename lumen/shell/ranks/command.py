"""The command line of this program, to be run once for each rank."""

from __future__ import annotations

import multiprocessing
import sys


def other_runner() -> str:
    """What runs this code in place of a command line that can be repeated; "" if that one can."""
    name = str(getattr(sys.modules.get("__main__"), "__file__", "") or "")
    if multiprocessing.parent_process() is not None:
        return "a child process of multiprocessing"
    if "pytest" in sys.modules and ("pytest" in name or not name):
        return "pytest"
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return "a prompt or a notebook"
    return "" if sys.orig_argv else "a program without a command line"


def repeated_command() -> list[str]:
    """The command line as it was typed: interpreter flags, `-m` and `-c` are kept."""
    return [sys.executable, *sys.orig_argv[1:]]
