"""Ranks that are new processes with a function to call, where there is no command line to repeat."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from lumen.core.devices import DevicePlan
from lumen.core.faults import Failure
from lumen.core.supervising import Supervision
from lumen.errors import LaunchError, RankError
from lumen.shell.ranks.standing import ENDINGS
from lumen.shell.ranks.supervisor import Outcome, supervise
from lumen.shell.ranks.travel import name_counters, pack, set_name_counters, unpack

_PROGRAM = """
import json, sys
with open("/proc/self/fd/" + sys.argv[1], "rb") as work:
    sys.path[:] = json.loads(work.readline())["path"]
from lumen.shell.ranks.spawned import main
main(int(sys.argv[1]), [int(number) for number in sys.argv[2].split(",")])
"""


_RESULT, _ERROR = b"result ", b"error  "


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
    head = {"path": sys.path, "argv": sys.argv, "names": name_counters()}
    with contextlib.ExitStack() as stack:  # files without a name: nothing of them is left, whoever is killed
        task = stack.enter_context(tempfile.TemporaryFile())
        task.write(json.dumps(head).encode() + b"\n" + work)
        task.flush()
        answers = [stack.enter_context(tempfile.TemporaryFile()) for _ in plan.ids]
        numbers = [file.fileno() for file in (task, *answers)]
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        command = [sys.executable, *flags, "-c", _PROGRAM, str(numbers[0]), ",".join(map(str, numbers[1:]))]
        outcome = supervise(command, plan, supervision, stop_signals, inherited=numbers)
        said = [_said(file) for file in answers]
    if outcome.code:
        _raise(outcome, said)
    if said[0] is None or not said[0].startswith(_RESULT):
        raise RankError("the ranks", got="they ended, with exit code 0, before the call returned", do="See sys.exit.")
    return said[0].removeprefix(_RESULT)


def _said(file: IO[bytes]) -> bytes | None:
    file.seek(0)
    return file.read() or None


def _raise(outcome: Outcome, said: Sequence[bytes | None]) -> None:
    failure = outcome.failure
    if failure is None:
        sys.stderr.write(outcome.report)
        raise SystemExit(outcome.code)
    if failure.kind == "interrupt":
        raise KeyboardInterrupt
    error: BaseException = RankError(
        f"rank {failure.rank}" if failure.rank >= 0 else "the ranks", got=_in_words(failure)
    )
    saved = said[failure.rank] if failure.rank >= 0 else None
    if saved is not None and saved.startswith(_ERROR):
        with contextlib.suppress(Exception):  # of a class that cannot travel
            error = unpack(saved.removeprefix(_ERROR))
    raise error from RemoteTraceback(f"\n{outcome.report}")


def _in_words(failure: Failure) -> str:
    ended = failure.message.startswith(ENDINGS)
    where = f", last seen in {failure.position}" if failure.position.stage else ""
    return f"it {failure.message}{where}" if ended else failure.message


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


def main(task: int, answers: Sequence[int]) -> None:
    """Runs one rank.

    Args:
        task: The number of the file that says what to do.
        answers: Those of the files for what came of it, one for each rank.
    """
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    with Path(f"/proc/self/fd/{task}").open("rb") as file:
        head, work = json.loads(file.readline()), file.read()
    sys.argv[:] = head["argv"]
    set_name_counters(head["names"])
    answer = f"/proc/self/fd/{answers[rank]}"
    try:
        result = unpack(work)()
    except Exception as error:
        with contextlib.suppress(Exception):  # one that cannot travel: the report has its traceback anyway
            Path(answer).write_bytes(_ERROR + pack(error))
        raise
    Path(answer).write_bytes(_RESULT + (result if rank == 0 else b""))
