"""SLURM's description of a task, in Paddle's variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.slurm import expand_nodelist, slurm_environment
from lumen.core.world import World, world_from_env
from lumen.errors import WorldError


def seen(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


# what SLURM 22.05 set, with srun -n 6 on two nodes of which the first had room for 4, and with salloc
TASK = seen(
    "SLURM_DISTRIBUTION=block SLURM_GTIDS=4,5 SLURM_JOB_ID=1 SLURM_JOB_NAME=batch.sh SLURM_JOB_NODELIST=n[1-2] "
    "SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NODELIST=n[1-2] SLURM_NPROCS=6 SLURM_NTASKS=6 SLURM_PROCID=4 SLURM_STEPID=0 "
    "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=6 "
    "SLURM_STEP_TASKS_PER_NODE=4,2 SLURM_TASKS_PER_NODE=4,2"
)
BATCH = seen(
    "SLURM_GTIDS=0 SLURM_JOB_ID=1 SLURM_JOB_NAME=batch.sh SLURM_JOB_NODELIST=n[1-2] SLURM_LOCALID=0 SLURM_NODEID=0 "
    "SLURM_NODELIST=n[1-2] SLURM_NPROCS=6 SLURM_NTASKS=6 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=4,2"
)
SALLOC = seen(
    "SLURM_GTIDS=0 SLURM_JOB_ID=5 SLURM_JOB_NAME=named SLURM_JOB_NODELIST=n1 SLURM_LOCALID=0 SLURM_NODEID=0 "
    "SLURM_NPROCS=2 SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_STEPID=4294967290 SLURM_STEP_ID=4294967290 "
    "SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1 SLURM_TASKS_PER_NODE=2"
)
SMALL = {
    **TASK,
    **seen(
        "SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_STEPID=3 SLURM_STEP_ID=3 "
        "SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2"
    ),
}
CYCLIC = {**TASK, **seen("SLURM_DISTRIBUTION=cyclic SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_PROCID=3")}
PLANE = {
    **TASK,
    **seen("SLURM_DISTRIBUTION=plane SLURM_DIST_PLANESIZE=2 SLURM_LOCALID=2 SLURM_NODEID=0 SLURM_PROCID=4"),
}


def without(environ: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


def test_a_task_of_a_step_gets_what_paddle_wants() -> None:
    assert slurm_environment(TASK) == {
        "PADDLE_TRAINERS_NUM": "6",
        "PADDLE_TRAINER_ID": "4",
        "PADDLE_LOCAL_SIZE": "2",
        "PADDLE_RANK_IN_NODE": "0",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "n1:20001",
        "PADDLE_CURRENT_ENDPOINT": "n2:20002",
        "PADDLE_TRAINER_ENDPOINTS": "n1:20002,n1:20003,n1:20004,n1:20005,n2:20002,n2:20003",
    }


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TASK, (6, 4, 2, 0, 1)),
        (SMALL, (2, 1, 2, 1, 0)),
        (CYCLIC, (6, 3, 2, 1, 1)),
        (PLANE, (6, 4, 4, 2, 0)),
        ({**TASK, "SLURM_DISTRIBUTION": "block:cyclic,nopack"}, (6, 4, 2, 0, 1)),
        (without(TASK, "SLURM_DISTRIBUTION"), (6, 4, 2, 0, 1)),
        (without(TASK, *[name for name in TASK if "STEP_" in name and name != "SLURM_STEP_ID"]), (6, 4, 2, 0, 1)),
        (
            {
                **TASK,
                **seen("SLURM_STEP_TASKS_PER_NODE=2,4 SLURM_PROCID=2 SLURM_NODEID=1 SLURM_LOCALID=0"),
            },
            (6, 2, 4, 0, 1),
        ),
        (
            {
                **TASK,
                **seen("SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_STEP_NODELIST=a,b[08-10]"),
                **seen("SLURM_PROCID=6 SLURM_NODEID=3 SLURM_LOCALID=0"),
            },
            (7, 6, 1, 0, 3),
        ),
    ],
)
def test_table(environ: dict[str, str], expected: tuple[int, ...]) -> None:
    world = world_from_env({**environ, **slurm_environment(environ)})
    assert (world.size, world.rank, world.local_size, world.local_rank, world.node) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"PATH": "/bin"},
        BATCH,
        SALLOC,
        {**TASK, "SLURM_STEP_ID": "4294967291"},
        without(TASK, "SLURM_PROCID"),
        {**SMALL, "SLURM_STEP_NUM_TASKS": "1"},
        {**without(SMALL, "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS": "1"},
        *[{**TASK, "SLURM_JOB_NAME": name} for name in ("bash", "interactive", "sh")],
        {**TASK, "PADDLE_TRAINERS_NUM": "6"},
        {**TASK, "PADDLE_TRAINER_ID": "0"},
    ],
)
def test_what_is_not_one_of_several_tasks_is_left_alone(environ: dict[str, str]) -> None:
    assert slurm_environment(environ) == {}


@pytest.mark.parametrize(
    ("changes", "master"),
    [
        ({}, "n1:20001"),
        ({"SLURM_JOB_ID": "123456"}, "n1:23456"),
        ({"SLURM_STEP_ID": "1"}, "n1:20998"),
        ({"PADDLE_MASTER": "head:7000"}, "head:7000"),
        ({"MASTER_ADDR": "10.0.0.9"}, "10.0.0.9:20001"),
        ({"MASTER_PORT": "7001"}, "n1:7001"),
        ({"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "7001"}, "10.0.0.9:7001"),
        ({"MASTER_ADDR": "10.0.0.9", "PADDLE_MASTER": "head:7000"}, "head:7000"),
        ({"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "7001", "PADDLE_MASTER": "head:7000"}, "10.0.0.9:7001"),
    ],
)
def test_where_the_ranks_meet(changes: dict[str, str], master: str) -> None:
    assert slurm_environment({**TASK, **changes})["PADDLE_MASTER"] == master


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({**TASK, "SLURM_PROCID": "6"}, "SLURM_PROCID: got 6; allowed: below SLURM_STEP_NUM_TASKS, 6"),
        ({**TASK, "SLURM_PROCID": "one"}, "SLURM_PROCID: got 'one'"),
        ({**TASK, "SLURM_PROCID": "3"}, "SLURM_PROCID: task 3 as number 0 on node 1"),
        ({**TASK, "SLURM_DISTRIBUTION": "cyclic"}, "SLURM_PROCID: task 4"),
        ({**PLANE, "SLURM_DIST_PLANESIZE": "0"}, "SLURM_DIST_PLANESIZE: got '0'"),
        (without(PLANE, "SLURM_DIST_PLANESIZE"), "SLURM_DIST_PLANESIZE: not set"),
        ({**TASK, "SLURM_LOCALID": "2"}, "SLURM_LOCALID: got 2; allowed: below the tasks of node 1"),
        ({**TASK, "SLURM_NODEID": "2"}, "SLURM_NODEID: got 2; allowed: below the nodes of SLURM_STEP_NODELIST, 2"),
        ({**TASK, "SLURM_STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS: got '0'"),
        ({**TASK, "SLURM_STEP_NUM_TASKS": "5"}, "SLURM_STEP_TASKS_PER_NODE: got '4,2'"),
        ({**TASK, "SLURM_STEP_TASKS_PER_NODE": "4,2(x"}, "SLURM_STEP_TASKS_PER_NODE: got '4,2"),
        ({**TASK, "SLURM_STEP_TASKS_PER_NODE": "6,0"}, "SLURM_STEP_TASKS_PER_NODE: got '6,0'"),
        ({**TASK, "SLURM_STEP_TASKS_PER_NODE": "1(x999999999)"}, "SLURM_STEP_TASKS_PER_NODE: got"),
        ({**TASK, "SLURM_STEP_NODELIST": "n[1-3]"}, "SLURM_STEP_NODELIST: 3 nodes; allowed: 2"),
        ({**TASK, "SLURM_STEP_NODELIST": "n[1-"}, "SLURM_STEP_NODELIST: got 'n.1-'"),
        ({**TASK, "SLURM_STEP_ID": "first"}, "SLURM_STEP_ID: got 'first'"),
        ({**TASK, "SLURM_JOB_ID": "x"}, "SLURM_JOB_ID: got 'x'"),
        ({**TASK, "PADDLE_MASTER": "head"}, "PADDLE_MASTER: got 'head'"),
        ({**TASK, "MASTER_PORT": "70000"}, "MASTER_PORT: got 'n1:70000'"),
        ({**TASK, "MASTER_ADDR": "fe80::1"}, "MASTER_ADDR: got 'fe80::1:20001'"),
        (without(TASK, "SLURM_LOCALID"), "SLURM_LOCALID: not set"),
        (without(TASK, "SLURM_NODEID"), "SLURM_NODEID: not set"),
        (without(TASK, "SLURM_JOB_ID"), "SLURM_JOB_ID: not set"),
        (without(TASK, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_STEP_NUM_TASKS: not set"),
        (without(TASK, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), "SLURM_STEP_TASKS_PER_NODE: not set"),
        (
            without(TASK, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
            "SLURM_STEP_NODELIST: not set",
        ),
    ],
)
def test_an_environment_that_does_not_add_up_names_the_variable(environ: dict[str, str], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        slurm_environment(environ)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", "a"),
        ("a,b", "a b"),
        (" a,b ", "a b"),
        ("n[01-04,07]", "n01 n02 n03 n04 n07"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("rack[1-2]n[01-02]", "rack1n01 rack1n02 rack2n01 rack2n02"),
        ("a[1-2],b,c[3]-ib", "a1 a2 b c3-ib"),
        ("gpu-node.cluster.org,n[1,3]", "gpu-node.cluster.org n1 n3"),
        ("[1-2]", "1 2"),
    ],
)
def test_nodelists(text: str, names: str) -> None:
    assert expand_nodelist(text) == tuple(names.split())


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ",", "a,", ",a", "a,,b", "a b", "n[", "n]", "n[]", "n[1-2", "n[1,]", "n[1 ,2]", "n[2-1]", "n[-1]"),
        *("n[a-b]", "n[1-2-3]", "n[[1]]", "n[²]", "n[0-99999],m", "n[0-999999999]", "n[0-9999]m[0-9999]"),
    ],
)
def test_what_is_no_nodelist_is_refused(text: str) -> None:
    with pytest.raises(WorldError, match=r"nodelist: .*names"):
        expand_nodelist(text)


def test_a_nodelist_may_have_a_hundred_thousand_names() -> None:
    assert len(expand_nodelist("n[00000-99999]")) == 100_000


SPANS = st.tuples(st.integers(0, 1200), st.integers(0, 12), st.integers(1, 6))
STEMS = st.from_regex(r"[a-z][a-z0-9.-]{0,5}[a-z]", fullmatch=True)


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A group of a nodelist and its names."""
    text = draw(STEMS)
    names = [text]
    for spans in draw(st.lists(st.lists(SPANS, min_size=1, max_size=3), max_size=2)):
        numbers = [str(first + more).zfill(width) for first, count, width in spans for more in range(count + 1)]
        parts = [
            str(first).zfill(width) + (f"-{str(first + count).zfill(width)}" if count else "")
            for first, count, width in spans
        ]
        tail = draw(STEMS)
        text += f"[{','.join(parts)}]{tail}"
        names = [f"{name}{number}{tail}" for name in names for number in numbers]
    return text, names


@given(st.lists(groups(), min_size=1, max_size=4))
def test_a_written_nodelist_gives_its_names_back(drawn: list[tuple[str, list[str]]]) -> None:
    text = ",".join(part for part, _ in drawn)
    assert expand_nodelist(text) == tuple(name for _, names in drawn for name in names)


def written(counts: list[int]) -> str:
    """Tasks per node as SLURM writes them."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def places(counts: list[int], block: int) -> list[tuple[int, int]]:
    """The node and local rank of each task, node after node taking a block."""
    left, nodes = list(counts), []
    while any(left):
        for node in range(len(left)):
            taken = min(block, left[node])
            left[node] -= taken
            nodes += [node] * taken
    return [(node, nodes[:rank].count(node)) for rank, node in enumerate(nodes)]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6).filter(lambda counts: sum(counts) > 1),
    st.sampled_from([("block", 99), ("cyclic", 1), ("cyclic:block", 1), ("plane", 2), ("plane", 3)]),
    st.integers(0, 2**26),
)
def test_the_tasks_of_a_step_partition_the_world(counts: list[int], distribution: tuple[str, int], job: int) -> None:
    kind, block = distribution
    size, told = sum(counts), []
    for rank, (node, local_rank) in enumerate(places(counts, block)):
        environ = {
            "SLURM_STEP_ID": "0",
            "SLURM_JOB_ID": str(job),
            "SLURM_DISTRIBUTION": kind,
            "SLURM_DIST_PLANESIZE": str(block),
            "SLURM_STEP_NUM_TASKS": str(size),
            "SLURM_STEP_TASKS_PER_NODE": written(counts),
            "SLURM_STEP_NODELIST": f"n[0-{len(counts) - 1}]",
            "SLURM_PROCID": str(rank),
            "SLURM_NODEID": str(node),
            "SLURM_LOCALID": str(local_rank),
        }
        variables = slurm_environment(environ)
        assert world_from_env(variables) == World(
            size=size, rank=rank, local_size=counts[node], local_rank=local_rank, node=node
        )
        told.append(variables)
    endpoints = [variables["PADDLE_CURRENT_ENDPOINT"] for variables in told]
    assert len(set(endpoints)) == size
    assert {variables["PADDLE_TRAINER_ENDPOINTS"] for variables in told} == {",".join(endpoints)}
    assert len({variables["PADDLE_MASTER"] for variables in told}) == 1
    assert told[0]["PADDLE_MASTER"] not in endpoints
    assert all(
        20_000 <= int(endpoint.rpartition(":")[2]) < 30_000 for endpoint in [*endpoints, told[0]["PADDLE_MASTER"]]
    )


@given(
    st.fixed_dictionaries(
        {"SLURM_PROCID": st.sampled_from(["0", "1", "3", "x"]), "SLURM_STEP_ID": st.sampled_from(["0", "4294967290"])},
        optional={
            "SLURM_NTASKS": st.sampled_from(["", "1", "2", "4", "x", "-1"]),
            "SLURM_TASKS_PER_NODE": st.sampled_from(["2", "2(x2)", "1,3", "(x2)", "x"]),
            "SLURM_JOB_NODELIST": st.sampled_from(["a", "a,b", "n[1-2]", "n[", ""]),
            "SLURM_NODEID": st.sampled_from(["0", "1", "2", "x"]),
            "SLURM_LOCALID": st.sampled_from(["0", "1", "2", "x"]),
            "SLURM_JOB_ID": st.sampled_from(["1", "99999", "x"]),
            "SLURM_DISTRIBUTION": st.sampled_from(["block", "cyclic", "arbitrary", "x"]),
            "MASTER_PORT": st.sampled_from(["1", "0", "x"]),
        },
    )
)
def test_any_environment_gives_a_world_or_a_world_error(environ: dict[str, str]) -> None:
    try:
        world = world_from_env(slurm_environment(environ))
    except WorldError:
        return
    assert 0 <= world.local_rank < world.local_size <= world.size
    assert 0 <= world.rank < world.size
