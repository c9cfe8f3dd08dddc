"""Starting the other ranks: this process becomes their supervisor."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from lumen.core.devices import DevicePlan
from lumen.core.world import Launch, rank_environments
from lumen.errors import LaunchError

_REPORT = "LUMEN_REPORT_FOLDER"
_SUPERVISOR = "LUMEN_SUPERVISOR_PID"
_POLL = 0.05
_SAVING = 60.0  # seconds that ranks which were asked to stop get to agree on a step and to save
_TAIL = 60  # lines kept of each rank, for a failure before it could report
_PR_SET_PDEATHSIG = 1
# exit codes of ranks that were asked to stop
_ASKED = {128 + one: one.name for one in (signal.SIGTERM, signal.SIGUSR1)}


def launch(plan: DevicePlan, *, grace: float = 5.0) -> NoReturn:
    """Runs this program once per rank, as children that this process only watches, and ends with their exit code.

    The command line is repeated as it was typed (`sys.orig_argv`), so interpreter flags, `-m` and `-c` are kept. Rank 0
    has the terminal; lines of the others carry their rank. When a rank fails, the others get `grace` seconds, then
    SIGTERM, then SIGKILL; the traceback of the rank that failed first is printed last.

    Args:
        plan: The devices, one for each rank.
        grace: Seconds that the other ranks get to end by themselves.

    Raises:
        LaunchError: The program cannot be run again (a notebook, a prompt, a test runner).
        SystemExit: Always, at the end: with 0, or the first failing rank's code.
    """
    command = _command()
    with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
        code = _supervise(plan, command, Path(folder), grace)
    sys.stdout.flush()
    raise SystemExit(code)


def report_failure(error: BaseException) -> None:
    """Leaves a rank's traceback where its supervisor finds it; without a supervisor it does nothing."""
    folder = os.environ.get(_REPORT)
    if not folder or not Path(folder).is_dir():
        return
    rank = os.environ.get("PADDLE_TRAINER_ID", "0")
    with contextlib.suppress(OSError):
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        (Path(folder) / f"rank-{rank}.txt").write_text(text)


def follow_supervisor() -> None:
    """Lets this rank die with its supervisor, killed or not; a rank that lumen did not start is left alone."""
    parent = os.environ.get(_SUPERVISOR)
    if not parent or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the line above
        os._exit(1)


# -- the supervisor ------------------------------------------------------------------------------------------------


def _command() -> list[str]:
    """The command line to repeat."""
    main = sys.modules.get("__main__")
    name = str(getattr(main, "__file__", "") or "")
    runner = "a prompt or a notebook" if hasattr(sys, "ps1") or "ipykernel" in sys.modules else ""
    if "pytest" in sys.modules and ("pytest" in name or not name):
        runner = "pytest"
    if multiprocessing.parent_process() is not None:
        runner = "a child process of multiprocessing"
    if runner or not sys.orig_argv:
        raise LaunchError(
            "devices",
            got=f"several, asked for in {runner or 'a program without a command line'}",
            allowed="several ranks from a script or a module, which lumen runs once per rank",
            do="Put the program into a script, or start it with python -m paddle.distributed.launch.",
        )
    return [sys.executable, *sys.orig_argv[1:]]


class _Rank:
    """One child: its process, what shows its lines, and the last of them."""

    def __init__(self, rank: int, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.rank = rank
        self.tail: collections.deque[str] = collections.deque(maxlen=_TAIL)
        piped = subprocess.PIPE if rank else None
        self.process = subprocess.Popen(  # noqa: S603 - the user's own command line
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL if rank else None,
            stdout=piped,
            stderr=piped,
            text=True,
        )
        streams = [stream for stream in (self.process.stdout, self.process.stderr) if stream is not None]
        self._pumps = [threading.Thread(target=self._pump, args=(stream,), daemon=True) for stream in streams]
        for pump in self._pumps:
            pump.start()

    def _pump(self, stream: IO[str]) -> None:
        for line in stream:
            self.tail.append(line)
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"[rank {self.rank}] {line}")
                sys.stderr.flush()

    def close(self) -> None:
        """Shows what is left of its lines."""
        for pump in self._pumps:
            pump.join(timeout=1.0)


class _Terminated(BaseException):
    """The supervisor was asked to end."""


def _terminate(*_: object) -> NoReturn:
    raise _Terminated


def _supervise(plan: DevicePlan, command: list[str], folder: Path, grace: float) -> int:
    """Starts all ranks and waits for them; returns the exit code."""
    ports = _free_ports(len(plan.ids))
    variables = rank_environments(Launch(kind=plan.kind, ids=plan.ids, ports=ports))
    common = {**os.environ, _REPORT: str(folder), _SUPERVISOR: str(os.getpid())}
    ranks: list[_Rank] = []

    def forward(number: int, _: object) -> None:
        for one in ranks:
            one.process.send_signal(number)

    handlers: dict[int, Any] = {signal.SIGTERM: _terminate, signal.SIGUSR1: forward}
    in_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items() if in_main}
    try:
        for rank, own in enumerate(variables):
            ranks.append(_Rank(rank, command, {**common, **own}))
        ended = _wait(ranks)
        if not any(rank.process.returncode for rank in ended):
            return 0
        _end(ranks, grace)
        code = _blame(ended, ranks, folder).process.returncode
        return code if code > 0 else 128 - code
    except KeyboardInterrupt:
        _end(ranks, grace)
        return 130
    except _Terminated:
        for one in ranks:
            one.process.terminate()
        _end(ranks, max(grace, _SAVING))
        return 143
    finally:
        _end(ranks, 0.0)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(ranks: Sequence[_Rank]) -> list[_Rank]:
    """Waits until all ranks ended well, or one did not; returns those that ended, in that order.

    Of several found at once the ones that gloo aborted come last: that is what the end of another rank does to them.
    """
    ended: list[_Rank] = []
    while True:
        found = [rank for rank in ranks if rank not in ended and rank.process.poll() is not None]
        ended += sorted(found, key=lambda rank: rank.process.returncode == -signal.SIGABRT)
        if len(ended) == len(ranks) or any(rank.process.returncode for rank in ended):
            return ended
        time.sleep(_POLL)


def _end(ranks: Sequence[_Rank], grace: float) -> None:
    """Waits, asks, then kills."""
    for seconds, act in ((grace, None), (min(grace, 2.0), signal.SIGTERM), (5.0, signal.SIGKILL)):
        alive = [rank for rank in ranks if rank.process.poll() is None]
        if not alive:
            break
        if act is not None:
            for rank in alive:
                rank.process.send_signal(act)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(rank.process.poll() is None for rank in alive):
            time.sleep(_POLL)
    for rank in ranks:
        rank.close()


def _blame(ended: Sequence[_Rank], ranks: Sequence[_Rank], folder: Path) -> _Rank:
    """Prints how each rank ended and, last, the words of the one that failed first; returns that one."""
    reports = sorted(folder.glob("rank-*.txt"), key=lambda path: path.stat().st_mtime_ns)
    first = next(rank for rank in ended if rank.process.returncode)
    if reports:
        first = ranks[int(reports[0].stem.removeprefix("rank-"))]
    if not reports and first.process.returncode in _ASKED:
        sys.stderr.write(f"lumen: stopped by {_ASKED[first.process.returncode]}\n")
        return first
    for rank in ranks:
        code = rank.process.returncode
        early = " before that" if code == 0 and rank in ended else ""
        word = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        sys.stderr.write(f"lumen: rank {rank.rank} {word}{early}\n")
    text = reports[0].read_text() if reports else "".join(first.tail)
    sys.stderr.write(f"lumen: rank {first.rank} failed first{':' if text.strip() else ''}\n{text.rstrip()}\n")
    sys.stderr.flush()
    return first


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody listens on now; all are held until all are known, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(int(one.getsockname()[1]) for one in sockets)
