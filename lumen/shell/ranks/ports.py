"""Ports of this machine that are taken, and kept, for ranks that will listen at them."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType


class HeldPorts:
    """Free ports that nobody else is given until the end of this context.

    A socket that is bound but does not listen holds a port against everybody who asks for any free one, and lets a
    rank listen there all the same: both say SO_REUSEADDR, as Paddle's store and gloo do.

    Args:
        count: How many.

    Example:
        >>> with HeldPorts(2) as ports:
        ...     len(set(ports))
        2
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._held = contextlib.ExitStack()

    def __enter__(self) -> tuple[int, ...]:
        ports = []
        for _ in range(self._count):
            one = self._held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
            ports.append(int(one.getsockname()[1]))
        return tuple(ports)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()
