"""The meeting before `fleet.init`, which holds Python's lock as it waits: nothing could end that or say who lacks."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time

from lumen.errors import ConnectError

_GREETING = b"lumen rank "
_GO = "go"
_AGAIN = 0.1  # seconds
_GRACE = 3.0  # seconds that a rank waits longer for rank 0 to tell who is missing


def meet(address: str, rank: int, size: int, seconds: float) -> None:
    """Returns on all ranks as soon as all are there; the port is free again then, for Paddle's store.

    Args:
        address: HOST:PORT, of a machine that rank 0 is on.
        rank: This rank.
        size: The number of ranks, >= 2.
        seconds: How long to wait for the others, > 0.

    Raises:
        ConnectError: Some did not come, or nobody answers at the address; on rank 0 it names those that are missing.

    Example:
        >>> meet("127.0.0.1:1", rank=1, size=2, seconds=0.01)
        Traceback (most recent call last):
        lumen.errors.ConnectError: the ranks: nobody at 127.0.0.1:1 for 0.01 s, where rank 0 should be; ...
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    if rank == 0:
        _receive(address, int(port), size, deadline, seconds)
    else:
        _visit((host, int(port)), address, rank, deadline, seconds)


def unreachable(got: str) -> ConnectError:
    """The error of ranks that do not meet."""
    return ConnectError(
        "the ranks",
        got=got,
        allowed="an address that every rank reaches, and as many ranks as PADDLE_TRAINERS_NUM says",
        do="Check that address, and that all ranks were started; FleetStrategy(connect_timeout=...) waits longer.",
    )


def _receive(address: str, port: int, size: int, deadline: float, seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.socket())
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("", port))
        except OSError as error:
            raise unreachable(f"rank 0 cannot open the port of {address}: {error.strerror}") from error
        door.listen(size)
        door.setblocking(False)
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(door, selectors.EVENT_READ)
        guests: dict[socket.socket, bytes] = {}
        while len(came := _ranks(guests, size)) < size - 1:
            if time.monotonic() > deadline:
                missing = ", ".join(str(rank) for rank in range(1, size) if rank not in came)
                why = f"rank {missing} did not come to {address} within {seconds:g} s"
                _dismiss(guests, why)
                raise unreachable(why)
            for key, _ in selector.select(timeout=_AGAIN):
                if key.fileobj is door:
                    guest = stack.enter_context(door.accept()[0])
                    guest.setblocking(False)
                    guests[guest] = b""
                    selector.register(guest, selectors.EVENT_READ)
                else:
                    _hear(selector, guests, key.fileobj)  # type: ignore[arg-type]  # all are sockets
        door.close()  # first: a rank that is let go would come back to it, where Paddle's store is to be
        _dismiss(guests, _GO)


def _hear(selector: selectors.BaseSelector, guests: dict[socket.socket, bytes], guest: socket.socket) -> None:
    """Takes what a guest says; one that is gone, or that says anything else, is forgotten."""
    said = b""
    with contextlib.suppress(OSError):
        said = guest.recv(64)
    guests[guest] += said
    if not said or not (guests[guest] + _GREETING).startswith(_GREETING):
        selector.unregister(guest)
        guest.close()
        del guests[guest]


def _ranks(guests: dict[socket.socket, bytes], size: int) -> set[int]:
    """Those who are there."""
    names = [said[len(_GREETING) : -1] for said in guests.values() if said.endswith(b"\n")]
    return {int(name) for name in names if name.isdigit() and 0 < int(name) < size}


def _dismiss(guests: dict[socket.socket, bytes], words: str) -> None:
    """Lets them go; who closes first keeps the port for a minute, so that must be they."""
    for guest in guests:
        guest.settimeout(1.0)
        with contextlib.suppress(OSError):
            guest.sendall(f"{words}\n".encode())
            guest.recv(1)


def _visit(place: tuple[str, int], address: str, rank: int, deadline: float, seconds: float) -> None:
    why = f"nobody at {address} for {seconds:g} s, where rank 0 should be"
    while True:
        left = max(deadline - time.monotonic(), 0.01)
        with contextlib.suppress(OSError), socket.create_connection(place, timeout=left) as link:
            link.sendall(_GREETING + b"%d\n" % rank)
            why = f"other ranks did not come to {address} within {seconds:g} s"
            link.settimeout(left + _GRACE)
            with link.makefile() as answers:
                answer = answers.readline()
            if answer == f"{_GO}\n":
                return
            if answer:
                raise unreachable(answer.rstrip())
        if time.monotonic() > deadline:
            raise unreachable(why)
        time.sleep(_AGAIN)
