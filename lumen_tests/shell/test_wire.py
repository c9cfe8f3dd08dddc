"""Messages over a connection: they arrive whole, in order, however the bytes are cut."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.shell.ranks.wire import Line, Message, Reader, pack

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
messages = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=5), values, max_size=3), st.binary(max_size=50)), max_size=5
)


@given(messages, st.lists(st.integers(0, 500), max_size=8))
def test_messages_arrive_however_the_bytes_are_cut(sent: list[Message], cuts: list[int]) -> None:
    data = b"".join(pack(header, body) for header, body in sent)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    reader, found = Reader(), []
    for start, end in itertools.pairwise(edges):
        found += reader.feed(data[start:end])
    assert found == sent
    assert reader.feed(b"") == []


@given(messages.filter(bool))
def test_a_message_is_not_given_before_its_last_byte(sent: list[Message]) -> None:
    data = b"".join(pack(header, body) for header, body in sent)
    reader = Reader()
    assert reader.feed(data[:-1]) == sent[:-1]
    assert reader.feed(data[-1:]) == sent[-1:]


@given(messages)
def test_messages_cross_a_socket(sent: list[Message]) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"".join(pack(header, body) for header, body in sent))
        near.shutdown(socket.SHUT_WR)
        reader, found = Reader(), []
        while data := far.recv(7):
            found += reader.feed(data)
    assert found == sent


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01" + b"\0" * 30,
        b"\0\0\0\4" + b"\0" * 8 + b"no!!",
        b"\xff" * 12,
    ],
    ids=["http", "tls", "no json", "too long"],
)
def test_another_programs_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ConnectionError, match="another program"):
        Reader().feed(data)


def test_a_stranger_may_send_little() -> None:
    small, large = pack({"do": "hello"}), pack({"do": "hello"}, b"x" * 5000)
    reader = Reader(4096)
    assert reader.feed(small) == [({"do": "hello"}, b"")]
    with pytest.raises(ConnectionError):
        reader.feed(large[:20])  # its head says how much is to come
    reader = Reader(4096)
    reader.most = Reader().most
    assert reader.feed(large) == [({"do": "hello"}, b"x" * 5000)]


class Desk:
    """The other side of lines: takes what they send, and answers as it is told."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.server.getsockname()

    def take(self, count: int) -> list[Message]:
        found: list[Message] = []
        while len(found) < count:
            found += self.reader.feed(self.connection.recv(1000))
        return found

    def accept(self) -> Any:
        self.connection, self.reader = self.server.accept()[0], Reader()
        return self.take(1)[0][0]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    with made.server:
        yield made


def test_a_line_says_who_calls_and_passes_over_answers_to_meetings_that_were_given_up(desk: Desk) -> None:
    line = Line(desk.address, {"do": "hello", "rank": 1})
    assert desk.accept() == {"do": "hello", "rank": 1}
    with desk.connection:
        answers = [({"number": 0, "what": "over"}, b"old"), ({"number": 1, "what": "met", "sizes": [2, 0, 1]}, b"abc")]
        desk.connection.sendall(b"".join(pack(*answer) for answer in answers))
        assert line.meet("loss", b"ab") == ({"number": 1, "what": "met", "sizes": [2, 0, 1]}, [b"ab", b"", b"c"])
        assert desk.take(1) == [({"do": "meet", "kind": "loss", "number": 1}, b"ab")]
        desk.connection.sendall(pack({"number": 2, "what": "over"}))
        assert line.meet("loss", b"") == ({"number": 2, "what": "over"}, [])
    line.close()


def test_a_large_value_crosses_while_the_other_side_reads(desk: Desk) -> None:
    body = bytes(range(256)) * 20_000
    line = Line(desk.address, {})
    desk.accept()
    sender = threading.Thread(target=line.send, args=({"do": "meet"}, body))
    sender.start()
    with desk.connection:
        assert desk.take(1) == [({"do": "meet"}, body)]
    sender.join()
    line.close()


def test_whoever_waits_learns_that_the_other_side_is_gone(desk: Desk) -> None:
    line = Line(desk.address, {})
    desk.accept()
    desk.connection.sendall(pack({"number": 1}, b"all of it")[:-1])
    desk.connection.close()
    with pytest.raises(ConnectionError, match="the coordinator is gone"):
        line.receive()
    line.close()


def test_nobody_there_is_an_error_at_once(desk: Desk) -> None:
    desk.server.close()
    with pytest.raises(OSError, match="refused"):
        Line(desk.address, {})
