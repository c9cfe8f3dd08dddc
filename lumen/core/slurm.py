"""SLURM: what a step of several tasks tells each of them, in the variables that Paddle reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import attrs

from lumen.errors import WorldError

_MOST_NAMES = 100_000
_FIRST_PORT, _PORTS = 20_000, 10_000  # below the ephemeral ports of Linux, 32768 to 60999
_LAST_STEP = 0xFFFF_FFF0  # numbers above are no steps of srun: 0xfffffffa is the shell of salloc, 0xfffffffb the script
_SHELLS = ("bash", "interactive", "sh")
_BY_HAND = "Correct the variable, or set PADDLE_TRAINERS_NUM and PADDLE_TRAINER_ID, which lumen takes as they are."
_GROUP = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


@attrs.frozen(kw_only=True)
class _Step:
    """A step as one of its tasks sees it.

    Args:
        size: Number of tasks, >= 2.
        rank: This task's number, 0 <= rank < size.
        node: This task's node, a place in `hosts`.
        local_rank: This task's number on its node.
        hosts: The names of the nodes.
        tasks: Number of tasks on each node.
        job: Number of the job.
        step: Number of the step in the job.
    """

    size: int
    rank: int
    node: int
    local_rank: int
    hosts: tuple[str, ...]
    tasks: tuple[int, ...]
    job: int
    step: int

    def port(self, offset: int) -> int:
        """A port of this step; steps of one job, and jobs with neighbouring numbers, have different ones."""
        return _FIRST_PORT + (self.job + 997 * self.step + offset) % _PORTS


def slurm_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables Paddle wants, for a task of a SLURM step that has one task for each rank (`srun python train.py`).

    The nodes' names and one port from 20000 to 29999 are where the ranks meet: it follows from the number of the job
    and is the same on all ranks. `MASTER_ADDR` and `MASTER_PORT`, or `PADDLE_MASTER`, say otherwise.

    Args:
        environ: The environment.

    Returns:
        What to add to the environment. Empty for a process that is not one of several tasks of a step: outside of
        SLURM, in a batch script or the shell of `salloc` (neither is a step), in a step of one task, where the job is
        named as a shell is (`srun --pty bash`), and where PADDLE_TRAINERS_NUM or PADDLE_TRAINER_ID is set already.

    Raises:
        WorldError: A variable is missing, cannot be read, or contradicts another; the error names it.

    Example:
        >>> task = {"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"}
        >>> task.update({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_PROCID": "2"})
        >>> task.update({"SLURM_NODEID": "1", "SLURM_LOCALID": "0"})
        >>> variables = slurm_environment(task)
        >>> variables["PADDLE_TRAINER_ID"], variables["PADDLE_LOCAL_SIZE"], variables["PADDLE_MASTER"]
        ('2', '1', 'n1:20007')
        >>> slurm_environment({})
        {}
    """
    if not _is_task(environ):
        return {}
    step = _step(environ)
    endpoints = _endpoints(step, _layout(environ, step))
    return {
        "PADDLE_TRAINERS_NUM": str(step.size),
        "PADDLE_TRAINER_ID": str(step.rank),
        "PADDLE_LOCAL_SIZE": str(step.tasks[step.node]),
        "PADDLE_RANK_IN_NODE": str(step.local_rank),
        "PADDLE_NNODES": str(len(step.hosts)),
        "PADDLE_MASTER": _master(environ, step),
        "PADDLE_CURRENT_ENDPOINT": endpoints[step.rank],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
    }


def expand_nodelist(text: str) -> tuple[str, ...]:
    """The names in a list of nodes as SLURM writes it.

    Args:
        text: Names separated by commas, with numbers and ranges in brackets: "a,b", "n[01-04,07]", "rack[1-2]n[01-02]".
            The last bracket counts fastest; zeros before a number are kept.

    Raises:
        WorldError: The text is empty or no such list, or it has more than 100000 names.

    Example:
        >>> expand_nodelist("login,n[08-10]")
        ('login', 'n08', 'n09', 'n10')
    """
    return _expand(text, "nodelist")


def _expand(text: str, name: str) -> tuple[str, ...]:
    names: list[str] = []
    position, text = 0, text.strip()
    while True:
        group = _GROUP.match(text, position)
        if group is None:
            raise _unreadable(text, name)
        names += _expand_group(group[0], text, name, _MOST_NAMES - len(names))
        if group.end() == len(text):
            return tuple(names)
        if text[group.end()] != ",":
            raise _unreadable(text, name)
        position = group.end() + 1


def _expand_group(group: str, text: str, name: str, room: int) -> list[str]:
    """The names of one group, if they are at most `room`."""
    pieces = [[plain] if plain else _expand_bracket(inner, text, name) for inner, plain in _PIECE.findall(group)]
    if math.prod(len(piece) for piece in pieces) > room:
        raise WorldError(name, got=_short(text), allowed=f"at most {_MOST_NAMES} names", do=_BY_HAND)
    names = [""]
    for piece in pieces:
        names = [head + tail for head in names for tail in piece]
    return names


def _expand_bracket(inner: str, text: str, name: str) -> list[str]:
    numbers: list[str] = []
    for part in inner.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise _unreadable(text, name)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise _unreadable(text, name)
        if len(numbers) + int(last) - int(first) >= _MOST_NAMES:
            raise WorldError(name, got=_short(text), allowed=f"at most {_MOST_NAMES} names", do=_BY_HAND)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _unreadable(text: str, name: str) -> WorldError:
    return WorldError(name, got=_short(text), allowed='names of nodes as in "a,b" or "n[01-04,07]"', do=_BY_HAND)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_task(environ: Mapping[str, str]) -> bool:
    """Whether the process is one of several tasks that srun started."""
    started = any(environ.get(name, "").strip() for name in ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"))
    if started or not environ.get("SLURM_PROCID", "").strip() or environ.get("SLURM_JOB_NAME") in _SHELLS:
        return False
    step = _found(environ, "SLURM_STEP_ID", "SLURM_STEPID")
    # a batch script has a SLURM_PROCID as well, but no step
    if step is None or _whole(*step) > _LAST_STEP:
        return False
    size = _found(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    return size is None or _whole(*size) != 1


def _found(environ: Mapping[str, str], *names: str) -> tuple[str, str] | None:
    """The first of some variables that is set, and its name."""
    return next(((name, environ[name].strip()) for name in names if environ.get(name, "").strip()), None)


def _required(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    found = _found(environ, *names)
    if found is None:
        raise WorldError(
            names[0], got="not set", allowed="what srun sets, since SLURM_PROCID and SLURM_STEP_ID are set", do=_BY_HAND
        )
    return found


def _whole(name: str, text: str, *, least: int = 0) -> int:
    value = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else least - 1
    if value < least:
        raise WorldError(name, got=text, allowed=f"a whole number >= {least}", do=_BY_HAND)
    return value


def _step(environ: Mapping[str, str]) -> _Step:
    size_name, size_text = _required(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    size = _whole(size_name, size_text, least=1)
    tasks_name, tasks_text = _required(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    tasks = _tasks_per_node(tasks_name, tasks_text, size_name, size)
    hosts_name, hosts_text = _required(environ, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    hosts = _expand(hosts_text, hosts_name)
    if len(hosts) != len(tasks):
        raise WorldError(
            hosts_name, got=f"{len(hosts)} nodes", allowed=f"{len(tasks)}, as in {tasks_name}={tasks_text}", do=_BY_HAND
        )
    node = _below(environ, "SLURM_NODEID", len(hosts), f"the nodes of {hosts_name}")
    return _Step(
        size=size,
        rank=_below(environ, "SLURM_PROCID", size, size_name),
        node=node,
        local_rank=_below(environ, "SLURM_LOCALID", tasks[node], f"the tasks of node {node} in {tasks_name}"),
        hosts=hosts,
        tasks=tasks,
        job=_whole(*_required(environ, "SLURM_JOB_ID", "SLURM_JOBID")),
        step=_whole(*_required(environ, "SLURM_STEP_ID", "SLURM_STEPID")),
    )


def _tasks_per_node(name: str, text: str, size_name: str, size: int) -> tuple[int, ...]:
    """The counts of a text like "2(x3),1", which must add up to `size`."""
    tasks: list[int] = []
    for part in text.split(","):
        found = _COUNT.fullmatch(part)
        if found is None or min(int(found[1]), int(found[2] or 1)) < 1:
            raise WorldError(name, got=_short(text), allowed='counts as in "2(x3),1"', do=_BY_HAND)
        if len(tasks) + int(found[2] or 1) > min(size, _MOST_NAMES):
            break
        tasks += [int(found[1])] * int(found[2] or 1)
    else:
        if sum(tasks) == size:
            return tuple(tasks)
    raise WorldError(name, got=_short(text), allowed=f"counts that add up to {size_name}, {size}", do=_BY_HAND)


def _below(environ: Mapping[str, str], name: str, bound: int, bound_name: str) -> int:
    value = _whole(*_required(environ, name))
    if value >= bound:
        raise WorldError(name, got=value, allowed=f"below {bound_name}, {bound}", do=_BY_HAND)
    return value


def _layout(environ: Mapping[str, str], step: _Step) -> list[int]:
    """The node of each rank: nodes take a block of ranks in turn, and by default as many as they have tasks."""
    _, kind = _found(environ, "SLURM_DISTRIBUTION") or ("", "block")
    block = step.size
    if kind.startswith("cyclic"):
        block = 1
    elif kind.startswith("plane"):
        block = _whole(*_required(environ, "SLURM_DIST_PLANESIZE"), least=1)
    nodes: list[int] = []
    left = list(step.tasks)
    while len(nodes) < step.size:
        for node, count in enumerate(left):
            nodes += [node] * min(block, count)
            left[node] -= min(block, count)
    if nodes[step.rank] != step.node or nodes[: step.rank].count(step.node) != step.local_rank:
        raise WorldError(
            "SLURM_PROCID",
            got=f"task {step.rank} as number {step.local_rank} on node {step.node}",
            allowed=f"the place that it has when tasks are distributed as {kind!r} over {step.tasks} tasks per node",
            do="Start the step with srun --distribution=block, or set the variables PADDLE_... yourself.",
        )
    return nodes


def _endpoints(step: _Step, nodes: Sequence[int]) -> list[str]:
    """A name for each rank, on its host; Paddle compares and counts them, and opens none of the ports."""
    seen = [0] * len(step.hosts)
    endpoints = []
    for node in nodes:
        seen[node] += 1
        endpoints.append(f"{step.hosts[node]}:{step.port(seen[node])}")
    return endpoints


def _master(environ: Mapping[str, str], step: _Step) -> str:
    """Where the ranks meet; Paddle takes MASTER_ADDR with MASTER_PORT before PADDLE_MASTER."""
    address, port = _found(environ, "MASTER_ADDR"), _found(environ, "MASTER_PORT")
    given = _found(environ, "PADDLE_MASTER")
    name = "PADDLE_MASTER"
    if given is not None and (address is None or port is None):
        master = given[1]
    else:
        name = "MASTER_PORT" if port else "MASTER_ADDR"
        master = f"{address[1] if address else step.hosts[0]}:{port[1] if port else step.port(0)}"
    host, _, number = master.rpartition(":")
    if not host or ":" in host or not re.fullmatch(r"[0-9]{1,5}", number) or not 0 < int(number) < 65536:
        raise WorldError(name, got=master, allowed="HOST:PORT, with a port from 1 to 65535", do=_BY_HAND)
    return master
