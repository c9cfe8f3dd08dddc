"""Messages between a rank and the coordinator: a JSON header and a body of bytes, over TCP."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

Message = tuple[dict[str, Any], bytes]

_SIZES = struct.Struct(">IQ")
_MOST_HEADER = 1 << 26
_MOST_BODY = 1 << 36
_CHUNK = 1 << 20


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """A message as bytes.

    Example:
        >>> Reader().feed(pack({"do": "meet"}, b"value"))
        [({'do': 'meet'}, b'value')]
    """
    text = json.dumps(header).encode()
    return _SIZES.pack(len(text), len(body)) + text + body


class Reader:
    """Takes bytes as they come and gives the messages that are complete.

    Args:
        most: Largest message that is taken, in bytes: little before the sender has proved who it is.
    """

    def __init__(self, most: int = _MOST_BODY) -> None:
        self.most = most
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that end with this data.

        Raises:
            ConnectionError: This is none of our messages.
        """
        self._held += data
        messages = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages

    def _take(self) -> Message | None:
        if len(self._held) < _SIZES.size:
            return None
        header, body = _SIZES.unpack_from(self._held)
        end = _SIZES.size + header + body
        if header > _MOST_HEADER or end > self.most:
            raise ConnectionError("a message of another program")
        if len(self._held) < end:
            return None
        start = _SIZES.size + header
        try:
            fields = json.loads(self._held[_SIZES.size : start])
        except ValueError as error:
            raise ConnectionError("a message of another program") from error
        message = fields, bytes(self._held[start:end])
        del self._held[:end]
        return message


class Line:
    """A connection on which one side waits for the other.

    Args:
        address: Host and port.
        hello: Who calls, as the first message.
        timeout: Seconds to connect.

    Raises:
        OSError: Nobody is there.
    """

    def __init__(self, address: tuple[str, int], hello: dict[str, Any], *, timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = Reader()
        self._meetings = 0
        self._ready: list[Message] = []
        self.send(hello)

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Sends a message.

        Raises:
            OSError: The other side is gone.
        """
        self.socket.sendall(pack(header, body))

    def receive(self) -> Message:
        """The next message; waits for it.

        Raises:
            OSError: The other side is gone, or the socket's own timeout passed.
        """
        while not self._ready:
            data = self.socket.recv(_CHUNK)
            if not data:
                raise ConnectionError("the coordinator is gone")
            self._ready += self._reader.feed(data)
        return self._ready.pop(0)

    def meet(self, kind: str, body: bytes) -> tuple[dict[str, Any], list[bytes]]:
        """Asks for a meeting and waits for it: what became of it, and the bytes of each rank.

        Answers to an earlier meeting that was given up are passed over.
        """
        self._meetings += 1
        self.send({"do": "meet", "kind": kind, "number": self._meetings}, body)
        header, bodies = self.receive()
        while header.get("number") != self._meetings:
            header, bodies = self.receive()
        parts, start = [], 0
        for size in header.get("sizes", ()):
            parts.append(bodies[start : start + size])
            start += size
        return header, parts

    def close(self) -> None:
        """Hangs up."""
        self.socket.close()
