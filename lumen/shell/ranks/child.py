"""Child: the process of one rank as its supervisor has it, and what becomes of the lines it writes."""

from __future__ import annotations

import codecs
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

from lumen.errors import ConfigError
from lumen.shell.ranks.processes import children, die_with_parent

_TAIL = 16384  # characters kept of what a rank wrote last, for one that ends before it could report
_CHUNK = 1 << 16


class Child:
    """One rank's process; it dies with this one.

    Rank 0 has the terminal: what it writes is handed on as it is, and its standard error is not even a pipe where that
    is a terminal, so that a progress bar can tell. Each line of another rank carries its number and goes to the
    standard error.

    Args:
        rank: The rank.
        command: What to run.
        environ: Its environment.
        output: "all", "errors", "none", or a folder; see `lumen.Trainer`.
        inherited: Numbers of files that it inherits; with some, rank 0 has no terminal: see `supervise`.
    """

    def __init__(
        self,
        rank: int,
        command: Sequence[str],
        environ: Mapping[str, str],
        output: str,
        *,
        inherited: Sequence[int] = (),
    ) -> None:
        self.rank = rank
        self.code: int | None = None
        self.began: dict[int, str] = {}  # the processes that it was seen to have started
        self._tail = ""
        self._lock = threading.Lock()
        folder = output if output not in ("all", "errors", "none") else None
        self._file = _open_log(folder, rank) if folder is not None else None
        parent = os.getpid()

        def tie() -> None:
            die_with_parent()
            if os.getppid() != parent:
                os._exit(1)

        piped = rank > 0 or folder is not None or bool(inherited)
        self._process = subprocess.Popen(  # noqa: S603 - the user's own command line
            command,
            env=dict(environ),
            pass_fds=tuple(inherited),
            stdin=subprocess.DEVNULL if rank or inherited else None,
            stdout=subprocess.PIPE if piped else None,
            stderr=subprocess.PIPE if piped or not sys.stderr.isatty() else None,
            preexec_fn=tie,  # noqa: PLW1509 - two system calls, no lock: safe beside the threads below
        )
        self._pumps: list[threading.Thread] = []
        for stream, own, shown in (
            (self._process.stdout, sys.stdout, output == "all" or (folder is not None and rank == 0)),
            (self._process.stderr, sys.stderr, output in ("all", "errors") or rank == 0),
        ):
            if stream is not None:
                target: TextIO | None = (own if rank == 0 else sys.stderr) if shown else None
                pump = threading.Thread(target=self._pump, args=(stream, target), daemon=True)
                self._pumps.append(pump)
                pump.start()

    def poll(self) -> int | None:
        """Its exit code once it ended; below zero: the signal that ended it."""
        self.code = self._process.poll()
        return self.code

    def send(self, number: int) -> None:
        """Sends it a signal, if it still runs."""
        self._process.send_signal(number)

    def look(self) -> None:
        """Notes which processes it has started."""
        self.began.update(children(self._process.pid))

    def last_words(self) -> str:
        """What it wrote last; waits a moment for what is on its way."""
        for pump in self._pumps:
            pump.join(timeout=0.5)
        with self._lock:
            return self._tail

    def close(self) -> None:
        """Ends what shows its lines."""
        for pump in self._pumps:
            pump.join(timeout=1.0)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None and not any(pump.is_alive() for pump in self._pumps):
                stream.close()
        if self._file is not None:
            self._file.close()

    def _pump(self, stream: IO[bytes], target: TextIO | None) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        line = ""
        while True:
            data = os.read(stream.fileno(), _CHUNK)
            text = decoder.decode(data, final=not data)
            with self._lock:
                self._tail = (self._tail + text)[-_TAIL:]
                if self._file is not None:
                    _write(self._file, text)
            if self.rank == 0:
                _write(target, text)
            else:
                *whole, line = (line + text).split("\n")
                _write(target, "".join(f"[rank {self.rank}] {one}\n" for one in whole))
            if not data:
                break
        _write(target, f"[rank {self.rank}] {line}\n" if line else "")


def _open_log(folder: str, rank: int) -> Any:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return (Path(folder) / f"rank-{rank}.log").open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "rank_output",
            got=folder,
            allowed="a folder that can be written to",
            do=f"{error.strerror}: {error.filename}.",
        ) from error


def _write(target: TextIO | None, text: str) -> None:
    if target is not None and text:
        with contextlib.suppress(OSError, ValueError):
            target.write(text)
            target.flush()
