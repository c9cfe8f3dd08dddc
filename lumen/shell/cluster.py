"""The ranks as they are connected: `fleet.init`, collectives on plain values, and waits that may be long."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import time
import warnings
from typing import Any

from lumen.core.devices import DevicePlan
from lumen.core.strategy import FleetStrategy
from lumen.core.world import World
from lumen.errors import WorldError
from lumen.shell.launcher import follow_supervisor
from lumen.shell.paddle_shim import paddle

_POLL = 0.1  # seconds between looks at the store; one costs 44 ms
_LONG = 3600.0  # seconds that a rank waits for another in a wait that may be long


class Cluster:
    """The connected ranks.

    Args:
        world: The ranks.
        place: Where this rank's tensors live.
        kind: "cpu" or "gpu".
    """

    def __init__(self, world: World, place: Any, kind: str) -> None:
        self.world = world
        self.place = place
        self.kind = kind
        self._uses = itertools.count()

    def gather(self, value: Any) -> list[Any]:
        """The plain value of every rank, in the order of the ranks; every rank must call it."""
        if self.world.size == 1:
            return [value]
        values: list[Any] = []
        paddle.distributed.all_gather_object(values, value)
        return values

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value on every rank; every rank must call it."""
        if self.world.size == 1:
            return value
        values = [value]
        paddle.distributed.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        """Waits for all ranks; one that is more than 30 s late makes gloo fail: see `wait`."""
        if self.world.size > 1:
            paddle.distributed.barrier()

    def wait(self, key: str, *, timeout: float = _LONG) -> None:
        """Waits for all ranks where one of them may take long: gloo ends any collective after 30 s, the store does not.

        Args:
            key: What is waited for, for the error; each rank must wait for the same.
            timeout: Seconds.

        Raises:
            WorldError: Not all ranks came in time.
        """
        if self.world.size == 1:
            return
        store = paddle.base.core.create_or_get_global_tcp_store()
        name = f"lumen/wait/{next(self._uses)}/{key}"
        store.add(name, 1)
        deadline = time.monotonic() + timeout
        while (arrived := store.add(name, 0)) < self.world.size:
            if time.monotonic() > deadline:
                raise WorldError(
                    key, got=f"{arrived} of {self.world.size} ranks after {timeout:g} s", allowed="all of them"
                )
            time.sleep(_POLL)


_connected: list[Cluster] = []


def connect(plan: DevicePlan, world: World, strategy: FleetStrategy) -> Cluster:
    """Sets this rank's device and connects the ranks, once in a process; `fleet.init` done outside is recognised.

    Args:
        plan: The devices that the Trainer was asked for.
        world: The ranks, as the environment describes them.
        strategy: What `fleet.init` is given.

    Raises:
        WorldError: The process is connected to other ranks or devices already, or the devices asked for are not as many
            as the ranks that a launcher started.
    """
    if world.size > 1 and len(plan.ids) not in (1, world.local_size):
        raise WorldError(
            "devices",
            got=f"{len(plan.ids)} of them, in a job with {world.local_size} ranks on this node",
            allowed=f"'auto' or {world.local_size}",
            do="Let the launcher's --nproc_per_node and devices= say the same.",
        )
    if _connected:
        return _same(plan, world.size)
    follow_supervisor()
    place = _set_device(plan, world)
    if world.size > 1 and not paddle.distributed.is_initialized():
        _init_fleet(plan.kind, strategy)
    cluster = Cluster(world, place, plan.kind)
    _connected.append(cluster)
    return cluster


def launchable(plan: DevicePlan) -> bool:
    """Whether this process may become the supervisor of these ranks: it has not trained by itself before.

    Raises:
        WorldError: It has.
    """
    if _connected:
        _same(plan, len(plan.ids))
    return len(plan.ids) > 1


def _same(plan: DevicePlan, size: int) -> Cluster:
    """What this process is connected to, if that is what is asked for."""
    first = _connected[0]
    if first.world.size != size or first.kind != plan.kind:
        raise WorldError(
            "devices",
            got=f"{plan.kind} with {size} rank{'s' if size > 1 else ''}",
            allowed=f"{first.kind} with {first.world.size}, which this process is connected to by an earlier Trainer",
            do="Use the same devices for all Trainers of a program.",
        )
    return first


def _set_device(plan: DevicePlan, world: World) -> Any:
    if plan.kind == "cpu":
        paddle.set_device("cpu")
        return paddle.CPUPlace()
    selected = os.environ.get("FLAGS_selected_gpus", "").split(",")[0]  # noqa: SIM112 - Paddle's name
    device = int(selected) if world.size > 1 and selected else plan.ids[min(world.local_rank, len(plan.ids) - 1)]
    paddle.set_device(f"gpu:{device}")
    return paddle.CUDAPlace(device)


def _init_fleet(kind: str, strategy: FleetStrategy) -> None:
    """`fleet.init` without the lines that it prints on every rank."""
    backend = os.environ.get("PADDLE_DISTRI_BACKEND")
    if kind == "cpu" and backend not in ("gloo", "auto", None):
        raise WorldError("PADDLE_DISTRI_BACKEND", got=backend, allowed="gloo, for ranks on a CPU")
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        from paddle.distributed import fleet

        fleet.init(
            role_maker=strategy.role_maker,
            is_collective=strategy.is_collective,
            strategy=strategy.distributed_strategy,
            log_level="ERROR",
        )


def make_deterministic() -> None:
    """Asks Paddle for kernels whose results do not depend on the order of additions; a CPU build has no such flags."""
    for flag in ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"):
        with contextlib.suppress(ValueError):
            paddle.set_flags({flag: 1})
