"""The decision about a loader: total, and every refusal says what to do."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.loading import Keep, LoaderFacts, LoaderKind, Rebuild, Refuse, Stride, plan_loader
from lumen.core.sampling import Sequential, Shuffled, Tail
from lumen.core.world import World

MAP = LoaderFacts(kind=LoaderKind.MAP, length=100, batch_size=8)
OWN = attrs.evolve(MAP, own_sampler=True, batches=13)
BATCHES = LoaderFacts(kind=LoaderKind.BATCHES, length=5)
STREAM = LoaderFacts(kind=LoaderKind.STREAM)


def worlds(size: int, rank: int = 0) -> World:
    return World(size=size, rank=rank, local_size=size, local_rank=rank, node=0)


facts = st.builds(
    LoaderFacts,
    kind=st.sampled_from(list(LoaderKind)),
    type_name=st.sampled_from(["", "DataLoader"]),
    length=st.none() | st.integers(0, 50),
    batch_size=st.none() | st.integers(1, 20),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    own_sampler=st.booleans(),
    batches=st.none() | st.integers(0, 9),
    workers=st.integers(0, 3),
)


@given(facts, st.integers(1, 6), st.booleans(), st.booleans(), st.integers(0, 2**40))
def test_there_is_a_plan_for_everything(
    seen: LoaderFacts, size: int, training: bool, distribute: bool, seed: int
) -> None:
    plan = plan_loader(seen, worlds(size), training=training, seed=seed, distribute=distribute)
    assert isinstance(plan, (Rebuild, Stride, Keep, Refuse))
    if isinstance(plan, Refuse):
        assert len(plan.reason) > 20
        assert plan.reason.endswith(".")
        assert plan.got
    if isinstance(plan, Stride):
        assert size > 1
        assert distribute
    if isinstance(plan, Rebuild) and not training:
        assert plan.config.tail is Tail.KEEP


@pytest.mark.parametrize(
    ("seen", "size", "training", "expected"),
    [
        (MAP, 1, True, Rebuild),
        (MAP, 4, True, Rebuild),
        (MAP, 4, False, Rebuild),
        (OWN, 1, True, Keep),
        (OWN, 4, True, Stride),
        (OWN, 4, False, Stride),
        (BATCHES, 1, True, Keep),
        (BATCHES, 2, True, Stride),
        (STREAM, 1, True, Keep),
        (STREAM, 2, True, Refuse),
        (STREAM, 2, False, Stride),
        (LoaderFacts(kind=LoaderKind.SUBCLASS, length=4, own_sampler=True, batches=4), 2, True, Stride),
        (LoaderFacts(kind=LoaderKind.ONCE), 1, True, Refuse),
        (LoaderFacts(kind=LoaderKind.ITERABLE), 1, True, Refuse),
        (LoaderFacts(kind=LoaderKind.FOREIGN), 1, False, Refuse),
        (LoaderFacts(kind=LoaderKind.DATASET), 1, True, Refuse),
        (LoaderFacts(kind=LoaderKind.OTHER), 1, True, Refuse),
        (attrs.evolve(MAP, length=0), 1, True, Refuse),
        (attrs.evolve(MAP, length=None), 1, True, Refuse),
        (attrs.evolve(OWN, batches=0), 1, True, Refuse),
        (attrs.evolve(BATCHES, length=0), 1, False, Refuse),
        (attrs.evolve(MAP, drop_last=True, length=15), 2, True, Refuse),
        (attrs.evolve(MAP, drop_last=True, length=15), 1, True, Rebuild),
    ],
)
def test_the_table(seen: LoaderFacts, size: int, training: bool, expected: type) -> None:
    assert type(plan_loader(seen, worlds(size), training=training)) is expected


def test_a_rebuilt_loader_keeps_what_the_user_chose() -> None:
    plan = plan_loader(attrs.evolve(MAP, shuffle=True, drop_last=True), worlds(2), training=True, seed=9)
    assert isinstance(plan, Rebuild)
    config = plan.config
    assert (config.length, config.batch_size, config.order, config.seed, config.tail) == (
        100,
        8,
        Shuffled(),
        9,
        Tail.DROP,
    )
    single = plan_loader(attrs.evolve(MAP, batch_size=None), worlds(1), training=True)
    assert isinstance(single, Rebuild)
    assert (single.config.batch_size, single.config.order, single.config.tail) == (1, Sequential(), Tail.PAD)


def test_a_stride_takes_this_ranks_batches() -> None:
    assert plan_loader(OWN, worlds(3, 2), training=True) == Stride(every=3, offset=2)


def test_without_distribution_every_rank_takes_all() -> None:
    plan = plan_loader(MAP, worlds(3, 2), training=True, distribute=False)
    assert isinstance(plan, Rebuild)
    assert not plan.split
    assert plan_loader(OWN, worlds(3, 2), training=True, distribute=False) == Keep()
