"""The ranks as they are connected: `fleet.init`, and the meetings at which they exchange plain values."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import os
import pickle  # noqa: TID251 - for values of this program's own ranks, which have shown a token
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from lumen.core.devices import DevicePlan
from lumen.core.faults import Position
from lumen.core.strategy import FleetStrategy
from lumen.core.world import World, meeting_point
from lumen.errors import ConnectError, WorldError
from lumen.shell.paddle_shim import paddle
from lumen.shell.ranks import supervision
from lumen.shell.ranks.coordinator import Coordinator
from lumen.shell.ranks.device import present_device, set_device
from lumen.shell.ranks.meeting import meet, unreachable
from lumen.shell.ranks.member import Member
from lumen.shell.ranks.uncaught import watch_uncaught

_KEY = "lumen/coordinator"
_LAST_WORDS = 10.0  # seconds that the others get to end their runs, when rank 0's process ends
_ALL_THERE = 60.0  # seconds for ranks that have met already, as a supervisor's have: they are started again then


class Cluster:
    """The connected ranks.

    Args:
        world: The ranks.
        place: Where this rank's tensors live.
        kind: "cpu" or "gpu".
        strategy: What `fleet.init` is given.
        member: This rank, as those that its supervisor watches over know it; None: there is no supervisor.
        outside: Whether `fleet.init` was called before, by the program itself.

    Attributes:
        fits: Number of the last fit of this process, from 0.
    """

    def __init__(
        self, world: World, place: Any, kind: str, strategy: FleetStrategy, member: Member | None, *, outside: bool
    ) -> None:
        self.world = world
        self.place = place
        self.kind = kind
        self.member = member
        self.outside = outside
        self.fits = -1
        self._strategy = strategy
        self._joined = world.size == 1
        self._coordinator: Coordinator | None = None

    def enter(
        self,
        hang_timeout: float | None,
        stand: Callable[[], Position],
        beats: Callable[[], Any],
        rescue: Callable[[BaseException], None],
    ) -> None:
        """A run begins: connects the ranks if they are not yet; see `Member.enter` for the arguments.

        Raises:
            ConnectError: The ranks did not find each other.
            RankError: Another rank ended before.
        """
        if self.member is not None:
            self.member.enter(hang_timeout, stand, beats, rescue)
        if self._joined:
            return
        if self.member is not None:
            self.member.meet("connect", b"")
        if not self.outside:
            if self.member is None:
                meet(meeting_point(os.environ), self.world.rank, self.world.size, self._strategy.connect_timeout)
            with self._deadline():
                _init_fleet(self.kind, self.place, self._strategy)
        if self.member is None:
            self.member = self._find_coordinator()
            watch_uncaught(self.member)
            self.member.enter(hang_timeout, stand, beats, rescue)
        self._joined = True

    def gather(self, kind: str, value: Any) -> list[Any]:
        """The plain value of every rank, in the order of the ranks; every rank must call it.

        Args:
            kind: What for. Ranks that come for different things are about to go different ways.
            value: Anything that can be pickled.

        Raises:
            RankError: Another rank failed, or has ended.
            WorldError: The ranks came for different things.
        """
        if self.member is None or self.world.size == 1:
            return [value]
        bodies = self.member.meet(kind, pickle.dumps(value))
        return [pickle.loads(body) for body in bodies]  # noqa: S301

    def broadcast(self, kind: str, value: Any) -> Any:
        """Rank 0's value on every rank; every rank must call it."""
        return self.gather(kind, value if self.world.is_global_zero else None)[0]

    def wait(self, kind: str) -> None:
        """Waits for all ranks, however long one of them takes; every rank must call it."""
        self.gather(kind, None)

    def saved(self, path: str) -> None:
        """A checkpoint was written, from which this fit can go on."""
        if self.member is not None and self.world.is_global_zero:
            self.member.saved(self.fits, os.path.abspath(path))

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[None]:
        """Turns what goes wrong, or takes too long, in `fleet.init` into an error that names where the ranks meet."""
        supervised = self.member is not None and self.member.supervised
        seconds = min(self._strategy.connect_timeout, _ALL_THERE) if supervised else self._strategy.connect_timeout
        ended = threading.Event()

        def end() -> None:
            if ended.wait(seconds):
                return
            error = _apart(f"no connection after {seconds:g} s")
            if self.member is not None:
                self.member.fail(error, Position())
            elif sys.__stderr__ is not None:  # the present one is set aside meanwhile
                sys.__stderr__.write(f"{type(error).__module__}.{type(error).__name__}: {error}\n")
                sys.__stderr__.flush()
            os._exit(1)

        threading.Thread(target=end, name="lumen connect", daemon=True).start()
        try:
            yield
        except (RuntimeError, OSError, ValueError) as error:
            if isinstance(error, WorldError):
                raise
            raise _apart(str(error).strip().splitlines()[-1] if str(error).strip() else repr(error)) from error
        finally:
            ended.set()

    def _find_coordinator(self) -> Member:
        """Meets the others where rank 0 says so, in Paddle's own store."""
        store = paddle.base.core.create_or_get_global_tcp_store()
        if self.world.rank == 0:
            several = self.world.local_size < self.world.size
            self._coordinator = coordinator = Coordinator(self.world.size, host="" if several else "127.0.0.1")
            atexit.register(coordinator.drain, _LAST_WORDS)
            names = dict.fromkeys(
                [_host(meeting_point(os.environ)), socket.gethostname()] if several else ["127.0.0.1"]
            )
            store.set(_KEY, " ".join([str(coordinator.port), coordinator.token, *names]))
        port, token, *hosts = bytes(store.get(_KEY)).decode().split()
        for host in hosts:
            with contextlib.suppress(OSError):
                return Member((host, int(port)), token, self.world.rank, supervised=False)
        raise ConnectError(
            "the ranks",
            got=f"nobody answers rank {self.world.rank} at port {port} of {' or '.join(hosts)}",
            allowed="a port of rank 0's node that the other nodes reach",
            do="Open the nodes' ephemeral ports to each other.",
        )


_connected: list[Cluster] = []
_plans: list[DevicePlan] = []  # of the first Trainer


def connect(plan: DevicePlan, world: World, strategy: FleetStrategy) -> Cluster:
    """The ranks of this process, and this rank's device; once in a process.

    Args:
        plan: The devices that the Trainer was asked for.
        world: The ranks, as the environment describes them.
        strategy: What `fleet.init` is given when the first run begins.

    Raises:
        WorldError: The process is connected to other ranks or devices already, or the devices asked for are not as many
            as the ranks that a launcher started.
    """
    outside = initialized_outside()
    if world.size > 1 and not outside and plan.asked and len(plan.ids) != world.local_size:
        raise WorldError(
            "devices",
            got=f"{len(plan.ids)} of them, in a job with {world.local_size} ranks on this node",
            allowed=f"'auto' or {world.local_size}",
            do="Let the launcher's --nproc_per_node, or the program's first Trainer, and devices= say the same.",
        )
    if _connected:
        return _same(plan, world.size)
    _plans.append(plan)
    kind, place = present_device(plan, world) if outside else (plan.kind, set_device(plan, world))
    member = supervision.join(world.rank)
    if member is not None:
        watch_uncaught(member)
    cluster = Cluster(world, place, kind, strategy, member, outside=outside)
    _connected.append(cluster)
    return cluster


def initialized_outside() -> bool:
    """Whether the program has called `fleet.init` itself."""
    return _connected[0].outside if _connected else bool(paddle.distributed.is_initialized())


def check_launchable(plan: DevicePlan) -> None:
    """Refuses to make a process the supervisor of ranks that has trained by itself before.

    Raises:
        WorldError: It has.
    """
    if _connected:
        _same(plan, len(plan.ids))


def _same(plan: DevicePlan, size: int) -> Cluster:
    """What this process is connected to, if that is what is asked for."""
    first, ids = _connected[0], _plans[0].ids
    apart = first.world.size != size or first.kind != plan.kind
    other = not apart and plan.asked and _plans[0].asked and plan.ids != ids and not first.outside
    if apart or other:
        raise WorldError(
            "devices",
            got=f"{plan.kind} with {size} rank{'s' if size > 1 else ''}{f', devices {list(plan.ids)}' * other}",
            allowed=f"{first.kind} with {first.world.size}{f', devices {list(ids)}' * other}, which this process is "
            "connected to by an earlier Trainer",
            do="Use the same devices for all Trainers of a program.",
        )
    return first


def _init_fleet(kind: str, place: Any, strategy: FleetStrategy) -> None:
    """`fleet.init` without the lines that it prints on every rank; Paddle reads the device from the environment."""
    backend = os.environ.get("PADDLE_DISTRI_BACKEND")
    if kind == "cpu" and backend not in ("gloo", "auto", None):
        raise WorldError("PADDLE_DISTRI_BACKEND", got=backend, allowed="gloo, for ranks on a CPU")
    os.environ.setdefault("PADDLE_CURRENT_ENDPOINT", f"{socket.gethostname()}:0")  # a name; nothing listens there
    if kind == "gpu":
        os.environ.setdefault("FLAGS_selected_gpus", str(place.get_device_id()))
    elif backend != "gloo":  # 3.3 starts no group of ranks on "auto", nor 2.6.2 without a GPU
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        from paddle.distributed import fleet

        # 3.3 keeps the environment as it was when the first DataLoader was built, which may be before SLURM was read
        vars(importlib.import_module("paddle.distributed.parallel"))["_global_parallel_env"] = None
        fleet.init(
            role_maker=strategy.role_maker,
            is_collective=strategy.is_collective,
            strategy=strategy.distributed_strategy,
            log_level="ERROR",
        )


def _host(address: str) -> str:
    return address.rpartition(":")[0] or "127.0.0.1"


def _apart(why: str) -> ConnectError:
    return unreachable(f"they did not meet at {meeting_point(os.environ)}: {why}")
