"""World: how many ranks there are and which one this process is; and the environment that says so."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from lumen.errors import WorldError


def _check_alone(environ: Mapping[str, str]) -> None:
    """Refuses an environment that describes more than one process, and does not say which one this is."""
    for name, alone in (("PADDLE_LOCAL_SIZE", "1"), ("PADDLE_RANK_IN_NODE", "0"), ("PADDLE_LOCAL_RANK", "0")):
        if environ.get(name, "").strip() not in ("", alone):
            raise WorldError(
                "PADDLE_TRAINERS_NUM",
                got="not set",
                allowed=f"a number, since {name} is set",
                do=f"Set PADDLE_TRAINER_ID too, or unset {name}.",
            )
    text = environ.get("PADDLE_NNODES", "").strip()
    if text not in ("", "1"):  # a Kubernetes PaddleJob's pod, in which the launcher was forgotten
        raise WorldError(
            "PADDLE_NNODES",
            got=text,
            allowed="1 where PADDLE_TRAINERS_NUM and PADDLE_TRAINER_ID are not set: each node would train alone",
            do="Start with python -m paddle.distributed.launch train.py, which reads it, or unset it.",
        )


def meeting_point(environ: Mapping[str, str]) -> str:
    """Where Paddle's ranks meet, as Paddle finds it: HOST:PORT.

    Args:
        environ: The environment: MASTER_ADDR with MASTER_PORT, PADDLE_MASTER, or PADDLE_TRAINER_ENDPOINTS.

    Raises:
        WorldError: None is set, or what is set is no address.

    Example:
        >>> meeting_point({"MASTER_ADDR": "node-1", "MASTER_PORT": "6170"})
        'node-1:6170'
    """
    address, port = environ.get("MASTER_ADDR", "").strip(), environ.get("MASTER_PORT", "").strip()
    master = environ.get("PADDLE_MASTER", "").strip()
    first = environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0].strip()
    name, place = next(
        (
            (name, place)
            for name, place in (
                ("MASTER_PORT", f"{address}:{port}" if address and port else ""),
                ("PADDLE_MASTER", master),
                ("PADDLE_TRAINER_ENDPOINTS", first),
            )
            if place
        ),
        ("MASTER_PORT" if address else "PADDLE_MASTER", ""),
    )
    host, _, number = place.rpartition(":")
    if not host or not number.isascii() or not number.isdigit() or not 0 < int(number) < 65536:
        raise WorldError(
            name,
            got=place or "not set",
            allowed="an address that all ranks reach, HOST:PORT with a port from 1 to 65535",
            do="Set PADDLE_MASTER to one of the node of rank 0, or MASTER_ADDR and MASTER_PORT.",
        )
    return place


@attrs.frozen(kw_only=True)
class World:
    """The ranks of a job as one of them sees it.

    Args:
        size: Number of ranks in the job, >= 1.
        rank: This process's global rank, 0 <= rank < size.
        local_size: Number of ranks on this process's node, 1 <= local_size <= size.
        local_rank: This process's rank on its node, 0 <= local_rank < local_size.
        node: Index of this process's node, >= 0.

    Raises:
        WorldError: A value is out of its range.

    Example:
        >>> World(size=4, rank=3, local_size=2, local_rank=1, node=1).is_global_zero
        False
    """

    size: int
    rank: int
    local_size: int
    local_rank: int
    node: int

    def __attrs_post_init__(self) -> None:
        for name, least, most in (
            ("size", 1, None),
            ("rank", 0, self.size - 1),
            ("local_size", 1, self.size),
            ("local_rank", 0, self.local_size - 1),
            ("node", 0, None),
        ):
            value = getattr(self, name)
            if value < least or (most is not None and value > most):
                allowed = f"from {least} to {most}" if most is not None else f">= {least}"
                raise WorldError(f"World.{name}", got=value, allowed=allowed)

    @classmethod
    def single(cls) -> World:
        """The world of one process."""
        return cls(size=1, rank=0, local_size=1, local_rank=0, node=0)

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.rank == 0


def world_from_env(environ: Mapping[str, str]) -> World:
    """The world that Paddle's launcher, or lumen's, describes to a process.

    Paddle's own `ParallelEnv().local_rank` is the global rank and `fleet.node_num()` counts addresses, so the variables
    are read themselves: PADDLE_TRAINERS_NUM and PADDLE_TRAINER_ID; PADDLE_LOCAL_SIZE and PADDLE_RANK_IN_NODE (or
    PADDLE_LOCAL_RANK), without which the ranks are on the hosts of PADDLE_TRAINER_ENDPOINTS, or all on one node.

    Args:
        environ: The environment.

    Raises:
        WorldError: A variable is missing beside another, is no number, or is out of its range; the error names it.

    Example:
        >>> world_from_env({})
        World(size=1, rank=0, local_size=1, local_rank=0, node=0)
        >>> world_from_env({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1"}).rank
        1
    """
    size, rank = _number(environ, "PADDLE_TRAINERS_NUM", least=1), _number(environ, "PADDLE_TRAINER_ID")
    if size is None and rank is None:
        _check_alone(environ)
        return World.single()
    if size is None or rank is None:
        given, missing = (
            ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM")
            if size is None
            else ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID")
        )
        raise WorldError(
            missing, got="not set", allowed=f"a number, since {given} is set", do=f"Set both, or unset {given}."
        )
    _below(rank, size, "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM")
    hosts = _hosts(environ, size)
    node = list(dict.fromkeys(hosts)).index(hosts[rank]) if hosts else 0
    guess = hosts.count(hosts[rank]) if hosts else size
    local_size = _number(environ, "PADDLE_LOCAL_SIZE", least=1)
    local_rank = _number(environ, "PADDLE_RANK_IN_NODE")
    name = "PADDLE_RANK_IN_NODE" if local_rank is not None else "PADDLE_LOCAL_RANK"
    if local_rank is None:
        local_rank = _number(environ, name)
    if local_size is None:
        # two nodes simulated on one machine share their host: PADDLE_NNODES tells them apart
        nodes = _number(environ, "PADDLE_NNODES", least=1) or 1
        local_size = max(1, size // nodes) if nodes > 1 and guess == size else guess
    if local_size > size:
        raise WorldError("PADDLE_LOCAL_SIZE", got=local_size, allowed=f"at most PADDLE_TRAINERS_NUM, {size}")
    if local_rank is None:
        local_rank = hosts[:rank].count(hosts[rank]) if hosts and guess == local_size else rank % local_size
    _below(local_rank, local_size, name, "the ranks on this node")
    if not hosts or guess != local_size:
        node = rank // local_size
    return World(size=size, rank=rank, local_size=local_size, local_rank=local_rank, node=node)


def _number(environ: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    text = environ.get(name)
    if text is None or not text.strip():
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise WorldError(name, got=text, allowed=f"a whole number >= {least}", do="Correct or unset the variable.")
    return value


def _below(value: int, bound: int, name: str, bound_name: str) -> None:
    if value >= bound:
        raise WorldError(name, got=value, allowed=f"below {bound_name}, {bound}", do="Ranks are counted from 0.")


def _hosts(environ: Mapping[str, str], size: int) -> list[str]:
    """The host of each rank; empty where there are no endpoints."""
    endpoints = [part.strip() for part in environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if part.strip()]
    if endpoints and len(endpoints) != size:
        raise WorldError(
            "PADDLE_TRAINER_ENDPOINTS", got=f"{len(endpoints)} of them", allowed=f"PADDLE_TRAINERS_NUM, {size}"
        )
    return [endpoint.rpartition(":")[0] for endpoint in endpoints]


@attrs.frozen(kw_only=True)
class Launch:
    """What starts the ranks of one node.

    Args:
        kind: "cpu" (gloo) or "gpu" (NCCL).
        ids: Device numbers in the order of the ranks.
        ports: One free port of this machine for each rank.
        host: Address at which the ranks meet.
    """

    kind: str
    ids: tuple[int, ...]
    ports: tuple[int, ...]
    host: str = "127.0.0.1"


def rank_environments(launch: Launch) -> tuple[dict[str, str], ...]:
    """The variables of each rank, to be added to its environment.

    The smallest set with which `fleet.init` works on Paddle 2.6.2 and 3.3 (measured), and the local rank and size.

    Args:
        launch: Devices and ports.

    Example:
        >>> rank_environments(Launch(kind="cpu", ids=(0, 1), ports=(6001, 6002)))[1]["PADDLE_CURRENT_ENDPOINT"]
        '127.0.0.1:6002'
    """
    size = len(launch.ids)
    endpoints = [f"{launch.host}:{port}" for port in launch.ports]
    environments = []
    for rank, device in enumerate(launch.ids):
        variables = {
            "PADDLE_TRAINERS_NUM": str(size),
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_LOCAL_SIZE": str(size),
            "PADDLE_RANK_IN_NODE": str(rank),
            "PADDLE_NNODES": "1",
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_DISTRI_BACKEND": "nccl" if launch.kind == "gpu" else "gloo",
        }
        if launch.kind == "gpu":
            variables["FLAGS_selected_gpus"] = str(device)
        environments.append(variables)
    return tuple(environments)
