"""Aborts: gloo ends the process inside backward when a peer is gone; here something can be done before that."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from types import TracebackType

_LONGEST = 12  # seconds until the process is ended whatever happens: the abort may have another reason, and hold locks
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


class CaughtAborts:
    """A context in which a C++ abort of this process calls a function first.

    Python's own `signal.signal` cannot do that: its handlers run when the interpreter goes on, which it does not.
    The signal comes from `abort()` in the thread that failed, not from outside, so Python code may run.

    Args:
        call: What to call, in the thread that aborts; the process ends when it returns.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._handler = _HANDLER(self._handle)
        self._libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
        self._before: int | None = None
        if self._libc is not None:
            self._libc.signal.restype = ctypes.c_void_p
            self._libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)

    def __enter__(self) -> None:
        if self._libc is not None:
            self._before = self._libc.signal(signal.SIGABRT, ctypes.cast(self._handler, ctypes.c_void_p))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._libc is not None:
            self._libc.signal(signal.SIGABRT, self._before)

    def _handle(self, _: int) -> None:
        if self._libc is not None:
            self._libc.signal(signal.SIGALRM, None)
            self._libc.alarm(_LONGEST)
            self._libc.signal(signal.SIGABRT, self._before)
        self._call()
