"""Ranks that are new processes with a function to call, where there is no command line to repeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lumen.core.devices import DevicePlan
from lumen.core.supervising import Supervision
from lumen.errors import LaunchError, RankError
from lumen.shell.ranks.supervisor import Outcome, supervise
from lumen.shell.ranks.travel import name_counters, pack, set_name_counters, unpack

_PROGRAM = """
import json, sys
with open(sys.argv[1] + "/head.json") as head:
    sys.path[:] = json.load(head)["path"]
from lumen.shell.ranks.spawned import main
main(sys.argv[1])
"""
_HEAD, _WORK, _RESULT, _ERROR = "head.json", "work", "result", "error-{}"


class RemoteTraceback(Exception):  # noqa: N818 - it stands for a text, below the error that it belongs to
    """Where the ranks stood, and the traceback that an error has in its own process."""


def spawn(work: bytes, plan: DevicePlan, supervision: Supervision, stop_signals: Sequence[int]) -> bytes:
    """Calls a function once on each of several ranks; returns what rank 0's call returned.

    Args:
        work: The function, packed; it takes nothing and returns bytes.
        plan: The devices, one for each rank.
        supervision: What is done about ranks that fail, and what is shown of them.
        stop_signals: Signals on which the ranks save and stop: they are handed on.

    Raises:
        Exception: What the first rank to fail raised; its cause has the report on all ranks.
        RankError: A rank ended without raising anything.
        KeyboardInterrupt: This program was interrupted.
        SystemExit: A signal asked the ranks to stop.
    """
    with tempfile.TemporaryDirectory(prefix="lumen-") as name:
        folder = Path(name)
        head = {"path": sys.path, "argv": sys.argv, "names": name_counters()}
        (folder / _HEAD).write_text(json.dumps(head))
        (folder / _WORK).write_bytes(work)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        command = [sys.executable, *flags, "-c", _PROGRAM, name]
        outcome = supervise(command, plan, supervision, stop_signals, terminal=False)
        if outcome.code:
            _raise(outcome, folder)
        return (folder / _RESULT).read_bytes()


def _raise(outcome: Outcome, folder: Path) -> None:
    if outcome.failure is None:
        sys.stderr.write(outcome.report)
        raise SystemExit(outcome.code)
    if outcome.failure.kind == "interrupt":
        raise KeyboardInterrupt
    cause = RemoteTraceback(f"\n{outcome.report}")
    saved = folder / _ERROR.format(outcome.failure.rank)
    try:
        error = unpack(saved.read_bytes())
    except Exception:  # noqa: BLE001 - of a class that cannot travel, or of a process that was killed
        error = RankError("the ranks", got=outcome.report.strip().splitlines()[-1].removeprefix("lumen: "))
    raise error from cause


def packed(function: Callable[[], bytes], parts: dict[str, Any]) -> bytes:
    """A function as `spawn` takes it.

    Args:
        function: It, with all that it holds.
        parts: What it holds, by name: the first that cannot travel is named.

    Raises:
        LaunchError: It cannot travel to another process.
    """
    try:
        return pack(function)
    except Exception as error:
        for name, part in parts.items():
            try:
                pack(part)
            except Exception as own:
                raise _stays(name, own) from own
        raise _stays("what is given to the Trainer", error) from error


def _stays(name: str, error: Exception) -> LaunchError:
    return LaunchError(
        name,
        got=f"it cannot travel to another process, {type(error).__name__}: {error}",
        allowed="what pickle can copy, where ranks are started outside of a script",
        do="Open files, locks and connections in setup(), or put the program into a script.",
    )


def main(name: str) -> None:
    """Runs one rank."""
    folder, rank = Path(name), os.environ["PADDLE_TRAINER_ID"]
    head = json.loads((folder / _HEAD).read_text())
    sys.argv[:] = head["argv"]
    set_name_counters(head["names"])
    function = unpack((folder / _WORK).read_bytes())
    try:
        result = function()
    except Exception as error:
        _save(error, folder / _ERROR.format(rank))
        raise
    if rank == "0":
        (folder / _RESULT).write_bytes(result)


def _save(error: Exception, path: Path) -> None:
    try:
        path.write_bytes(pack(error))
    except Exception:  # noqa: BLE001 - the report has its traceback anyway
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1])
