"""Coordinator: where the ranks meet, say where they stand, and learn that one of them failed.

Ranks exchange plain values here, not by collectives of gloo or NCCL: gloo ends any wait after 30 s, whatever it is
set to, and takes 5 to 7 ms for an object (2 ranks; here 0.3 ms); and nobody in a collective can be told that a peer is
gone.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import threading
import time
from typing import Any

from lumen.core.faults import Failure
from lumen.shell.ranks.roll import Roll
from lumen.shell.ranks.wire import Reader, pack

_TICK = 0.1
_STRANGER = 4096  # bytes that are taken of a connection before it has shown the token
_CHUNK = 1 << 20


class _Caller:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.reader = Reader(_STRANGER)
        self.rank: int | None = None
        self.channel = ""
        self.out = bytearray()


class Coordinator:
    """Serves the ranks of one attempt in a thread of its own.

    Args:
        size: Number of ranks.
        host: Address to listen at; "" for all of this machine's.

    Attributes:
        token: What a rank must show.
        port: The port it listens at.
        roll: What it knows; read it under `lock`, or when closed.
        lock: Held while the roll changes.
    """

    def __init__(self, size: int, *, host: str = "127.0.0.1") -> None:
        self.token = secrets.token_hex(16)
        self.roll = Roll(size, time.monotonic())
        self.lock = threading.Lock()
        self._server = socket.create_server((host, 0), backlog=min(2 * size, 4096))
        self._server.setblocking(False)
        self.port = int(self._server.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._lines: dict[tuple[int, str], _Caller] = {}
        self._connections: set[socket.socket] = set()
        self._ended = threading.Event()
        os.register_at_fork(after_in_child=self._hang_up)
        self._thread = threading.Thread(target=self._serve, name="lumen coordinator", daemon=True)
        self._thread.start()

    def declare(self, failure: Failure) -> None:
        """Ends the runs of all ranks for a reason that none of them gave."""
        with self.lock:
            self.roll.declare(failure, time.monotonic())

    def ended(self, rank: int, code: int, words: str) -> None:
        """A rank's process ended, as its parent sees it: see `Roll.ended`."""
        with self.lock:
            self.roll.ended(rank, code, words, time.monotonic())

    def drain(self, seconds: float) -> None:
        """Waits, at the end of the process that it is in, until all other ranks have their answers and have left.

        Args:
            seconds: For so long at most. One that waits for somebody is not waited for: nobody comes any more.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self.lock:
                busy = any(caller.out for caller in self._lines.values()) or self.roll.outbox
                inside = any(rank.inside and not rank.gone and rank.waiting is None for rank in self.roll.ranks)
            if not busy and not inside:
                return
            time.sleep(_TICK)

    def close(self) -> None:
        """Hangs up on everybody."""
        self._ended.set()
        self._thread.join(timeout=5.0)
        self._hang_up()

    def _hang_up(self) -> None:
        for connection in (self._server, *self._connections):
            connection.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            events = self._selector.select(_TICK)
            with self.lock:
                for key, _ in events:
                    if key.fileobj is self._server:
                        self._accept()
                    else:
                        self._read(key.data)
                self.roll.tick(time.monotonic())
                self._post()
                for caller in [one for one in self._lines.values() if one.out]:
                    self._write(caller)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.add(connection)
            self._selector.register(connection, selectors.EVENT_READ, _Caller(connection))

    def _read(self, caller: _Caller) -> None:
        self._write(caller)
        try:
            data = caller.socket.recv(_CHUNK)
            messages = caller.reader.feed(data) if data else None
        except BlockingIOError:
            return
        except OSError:
            messages = None
        if messages is None:
            self._drop(caller)
            return
        for header, body in messages:
            if caller.rank is None:
                if not self._greet(caller, header):
                    self._drop(caller)
                    return
            else:
                self.roll.take(caller.rank, header, body, time.monotonic())

    def _greet(self, caller: _Caller, header: dict[str, Any]) -> bool:
        rank, token = header.get("rank"), header.get("token")
        if not isinstance(token, str) or not hmac.compare_digest(token, self.token):
            return False
        if not isinstance(rank, int) or not 0 <= rank < len(self.roll.ranks):
            return False
        caller.rank, caller.channel = rank, str(header.get("channel"))
        caller.reader.most = Reader().most
        self._lines[rank, caller.channel] = caller
        return True

    def _post(self) -> None:
        outbox, self.roll.outbox = self.roll.outbox, []
        for rank, channel, (header, body) in outbox:
            caller = self._lines.get((rank, channel))
            if caller is not None:
                caller.out += pack(header, body)

    def _write(self, caller: _Caller) -> None:
        """Sends what the connection takes now; the rest waits until it can be written."""
        with contextlib.suppress(OSError):
            while caller.out:
                del caller.out[: caller.socket.send(caller.out)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.out else 0)
        with contextlib.suppress(KeyError, ValueError):
            if self._selector.get_key(caller.socket).events != wanted:
                self._selector.modify(caller.socket, wanted, caller)

    def _drop(self, caller: _Caller) -> None:
        self._selector.unregister(caller.socket)
        self._connections.discard(caller.socket)
        caller.socket.close()
        if caller.rank is not None:
            self._lines.pop((caller.rank, caller.channel), None)
            self.roll.lost(caller.rank, time.monotonic())
