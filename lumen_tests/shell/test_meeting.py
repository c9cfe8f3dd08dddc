"""Ranks come late, in any order, with strangers among them; the port is free again as soon as all have met."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from lumen.errors import ConnectError
from lumen.shell.ranks.meeting import meet


def free_address() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


def in_threads(*calls: Callable[[], None]) -> list[BaseException | None]:
    """What each call raised."""
    raised: list[BaseException | None] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            calls[index]()
        except ConnectError as error:
            raised[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return raised


@pytest.mark.parametrize("late", [0, 1, 2])
def test_all_wait_for_the_last_and_the_port_is_free_then(late: int) -> None:
    address = free_address()

    def come(rank: int) -> None:
        time.sleep(0.4 if rank == late else 0.0)
        meet(address, rank, 3, 20.0)

    assert in_threads(*(lambda rank=rank: come(rank) for rank in range(3))) == [None] * 3  # type: ignore[misc]
    with socket.socket() as store:  # as strict as any store: it does not ask for an address in use
        store.bind(("", int(address.rpartition(":")[2])))


def test_strangers_and_those_who_come_again_change_nothing() -> None:
    address = free_address()
    place = ("127.0.0.1", int(address.rpartition(":")[2]))

    def disturb() -> None:
        deadline = time.monotonic() + 10
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"", b"lumen rank 9\n", b"lumen rank x\n", b"lumen rank 1\n"):
            while time.monotonic() < deadline:
                try:
                    with socket.create_connection(place, timeout=1.0) as link:
                        link.sendall(words)
                    break
                except OSError:
                    time.sleep(0.02)
        meet(address, 1, 3, 20.0)

    def last() -> None:
        time.sleep(1.0)
        meet(address, 2, 3, 20.0)

    assert in_threads(lambda: meet(address, 0, 3, 20.0), disturb, last) == [None] * 3


def test_the_missing_are_named_on_all_that_came() -> None:
    address = free_address()
    here, there = in_threads(lambda: meet(address, 0, 4, 0.8), lambda: meet(address, 2, 4, 0.8))
    for error in (here, there):
        assert f"rank 1, 3 did not come to {address} within 0.8 s" in str(error)
    with pytest.raises(ConnectError, match=rf"nobody at {address} for 0.2 s, where rank 0 should be"):
        meet(address, 2, 4, 0.2)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        with pytest.raises(ConnectError, match=r"rank 0 cannot open the port of .*Address already in use"):
            meet(f"127.0.0.1:{taken.getsockname()[1]}", 0, 2, 5.0)
