"""Signals that ask a run to stop: it saves, stops where all ranks agree, and ends with the signal's exit code."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

from lumen.core.requests import Request
from lumen.errors import ConfigError, did_you_mean

STOP_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGHUP")
_ONE = 0.5  # seconds within which two are one: a signal to all processes of a job is also handed on by its supervisor


def signal_numbers(names: Any) -> tuple[int, ...]:
    """The numbers of some signals.

    Args:
        names: A list of names such as "SIGTERM".

    Raises:
        ConfigError: One is no signal, or one that cannot be caught.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ConfigError("stop_signals", got=names, allowed="a list of names such as 'SIGTERM'")
    known = {one.name: int(one) for one in signal.Signals if one not in (signal.SIGKILL, signal.SIGSTOP)}
    for name in names:
        if name not in known:
            raise ConfigError("stop_signals", got=name, do=did_you_mean(str(name), known))
    return tuple(known[name] for name in names)


class StopSignals:
    """A context in which some signals ask the run to stop; a second one ends the process at once.

    A handler that the program set itself is left alone, and outside of the main thread nothing is done.

    Args:
        numbers: The signals.
        ask: Holds what this rank asks for, until the ranks share it.
    """

    def __init__(self, numbers: Sequence[int], ask: Callable[[Request], None]) -> None:
        self._numbers = numbers
        self._ask = ask
        self._before: dict[int, Any] = {}
        self._received: float | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._numbers:
            if signal.getsignal(number) in (signal.SIG_DFL, None):
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._received is not None:
            if now - self._received < _ONE:
                return
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._received = now
        self._ask(Request(stop=True, save=True, reason=signal.Signals(number).name, signal=number))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}
