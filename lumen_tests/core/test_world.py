"""The world as the environment describes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.world import Launch, World, meeting_point, rank_environments, world_from_env
from lumen.errors import WorldError

NODES_2_AND_4 = ",".join([*[f"10.0.0.1:{p}" for p in (1, 2)], *[f"10.0.0.2:{p}" for p in (1, 2, 3, 4)]])


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (1, 0, 1, 0, 0)),
        ({"PATH": "/bin", "PADDLE_NNODES": "1"}, (1, 0, 1, 0, 0)),
        ({"PADDLE_TRAINERS_NUM": "1", "PADDLE_TRAINER_ID": "0"}, (1, 0, 1, 0, 0)),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1"}, (2, 1, 2, 1, 0)),
        ({"PADDLE_TRAINERS_NUM": "", "PADDLE_TRAINER_ID": ""}, (1, 0, 1, 0, 0)),
        (
            {
                "PADDLE_TRAINERS_NUM": "4",
                "PADDLE_TRAINER_ID": "3",
                "PADDLE_LOCAL_SIZE": "2",
                "PADDLE_RANK_IN_NODE": "1",
            },
            (4, 3, 2, 1, 1),
        ),
        (
            {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1", "PADDLE_NNODES": "2", "PADDLE_LOCAL_RANK": "0"},
            (2, 1, 1, 0, 1),
        ),
        (
            {"PADDLE_TRAINERS_NUM": "6", "PADDLE_TRAINER_ID": "1", "PADDLE_TRAINER_ENDPOINTS": NODES_2_AND_4},
            (6, 1, 2, 1, 0),
        ),
        (
            {"PADDLE_TRAINERS_NUM": "6", "PADDLE_TRAINER_ID": "4", "PADDLE_TRAINER_ENDPOINTS": NODES_2_AND_4},
            (6, 4, 4, 2, 1),
        ),
    ],
)
def test_table(environ: dict[str, str], expected: tuple[int, ...]) -> None:
    world = world_from_env(environ)
    assert (world.size, world.rank, world.local_size, world.local_rank, world.node) == expected
    assert world.is_global_zero == (world.rank == 0)


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"PADDLE_TRAINERS_NUM": "2"}, "PADDLE_TRAINER_ID: not set"),
        ({"PADDLE_NNODES": "2", "PADDLE_MASTER": "train-worker-0:36543"}, "PADDLE_NNODES: got '2'.*launch"),
        ({"PADDLE_NNODES": "2:4"}, "PADDLE_NNODES: got '2:4'"),
        (
            {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "0", "PADDLE_TRAINER_ENDPOINTS": "a:1,a:2,a:3"},
            "PADDLE_TRAINER_ENDPOINTS: 3 of them; allowed: PADDLE_TRAINERS_NUM, 2",
        ),
        ({"PADDLE_LOCAL_SIZE": "2"}, "PADDLE_TRAINERS_NUM: not set; allowed: a number, since PADDLE_LOCAL_SIZE is"),
        ({"PADDLE_RANK_IN_NODE": "1"}, "PADDLE_TRAINERS_NUM: not set; allowed: a number, since PADDLE_RANK_IN_NODE"),
        ({"PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINERS_NUM: not set"),
        ({"PADDLE_TRAINERS_NUM": "two", "PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINERS_NUM: got 'two'"),
        ({"PADDLE_TRAINERS_NUM": "0", "PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINERS_NUM: got '0'"),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "2"}, "PADDLE_TRAINER_ID: got 2; allowed: below"),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "-1"}, "PADDLE_TRAINER_ID: got '-1'"),
        (
            {
                "PADDLE_TRAINERS_NUM": "2",
                "PADDLE_TRAINER_ID": "1",
                "PADDLE_LOCAL_SIZE": "1",
                "PADDLE_RANK_IN_NODE": "1",
            },
            "PADDLE_RANK_IN_NODE: got 1",
        ),
        (
            {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1", "PADDLE_LOCAL_RANK": "5"},
            "PADDLE_LOCAL_RANK: got 5",
        ),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1", "PADDLE_LOCAL_SIZE": "3"}, "PADDLE_LOCAL_SIZE: got 3"),
    ],
)
def test_an_environment_that_does_not_add_up_names_the_variable(environ: dict[str, str], variable: str) -> None:
    with pytest.raises(WorldError, match=variable):
        world_from_env(environ)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "PADDLE_TRAINERS_NUM",
                "PADDLE_TRAINER_ID",
                "PADDLE_LOCAL_SIZE",
                "PADDLE_RANK_IN_NODE",
                "PADDLE_LOCAL_RANK",
                "PADDLE_NNODES",
                "PADDLE_TRAINER_ENDPOINTS",
            ]
        ),
        st.sampled_from(["", "0", "1", "2", "3", "4", "x", "-1", "a:1,b:1", "a:1,a:2,b:1"]),
    )
)
def test_any_environment_gives_a_world_or_a_world_error(environ: dict[str, str]) -> None:
    try:
        world = world_from_env(environ)
    except WorldError:
        return
    assert 0 <= world.local_rank < world.local_size <= world.size
    assert 0 <= world.rank < world.size


@given(st.integers(1, 9))
def test_the_ranks_that_lumen_starts_see_the_world_it_meant(size: int) -> None:
    launch = Launch(kind="cpu", ids=tuple(range(size)), ports=tuple(range(7000, 7000 + size)))
    for rank, environ in enumerate(rank_environments(launch)):
        assert world_from_env(environ) == World(size=size, rank=rank, local_size=size, local_rank=rank, node=0)


def test_a_gpu_rank_is_told_its_gpu_in_the_users_order() -> None:
    launch = Launch(kind="gpu", ids=(2, 0), ports=(1, 2))
    first, second = rank_environments(launch)
    assert (first["FLAGS_selected_gpus"], second["FLAGS_selected_gpus"]) == ("2", "0")
    assert first["PADDLE_DISTRI_BACKEND"] == "nccl"


@pytest.mark.parametrize(
    "fields",
    [(0, 0, 1, 0, 0), (1, 1, 1, 0, 0), (2, 0, 3, 0, 0), (2, 0, 2, 2, 0), (2, 0, 2, -1, 0), (2, 0, 2, 0, -1)],
)
def test_a_world_that_cannot_be_is_refused(fields: tuple[int, ...]) -> None:
    size, rank, local_size, local_rank, node = fields
    with pytest.raises(WorldError, match="World"):
        World(size=size, rank=rank, local_size=local_size, local_rank=local_rank, node=node)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"PADDLE_MASTER": "a:1", "MASTER_ADDR": "b"}, "a:1"),
        ({"PADDLE_MASTER": "a:1", "MASTER_ADDR": "b", "MASTER_PORT": "2"}, "b:2"),
        ({"PADDLE_TRAINER_ENDPOINTS": "c:3,d:4"}, "c:3"),
        ({"PADDLE_MASTER": "", "PADDLE_TRAINER_ENDPOINTS": "c:3"}, "c:3"),
    ],
)
def test_where_the_ranks_meet(environ: dict[str, str], place: str) -> None:
    assert meeting_point(environ) == place


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "PADDLE_MASTER: not set"),
        ({"MASTER_ADDR": "b"}, "MASTER_PORT: not set"),
        ({"PADDLE_MASTER": "nonsense"}, "PADDLE_MASTER: got 'nonsense'"),
        ({"PADDLE_MASTER": "a:99999"}, "PADDLE_MASTER: got 'a:99999'"),
        ({"PADDLE_MASTER": "a:0"}, "PADDLE_MASTER: got 'a:0'"),
        ({"MASTER_ADDR": "b", "MASTER_PORT": "x"}, "MASTER_PORT: got 'b:x'"),
    ],
)
def test_an_address_that_is_none_names_its_variable(environ: dict[str, str], words: str) -> None:
    with pytest.raises(WorldError, match=words):
        meeting_point(environ)
