"""The decision about a loader: total, and every refusal says what to do."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.loading import (
    Keep,
    LoaderFacts,
    LoaderKind,
    LoaderPolicy,
    Rebuild,
    Refuse,
    Stride,
    check_batches,
    plan_loader,
)
from lumen.core.orders.base import Sequential, Shuffled
from lumen.core.orders.bucketed import Bucketed
from lumen.core.sampling import SamplerConfig, Tail
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
    stateful=st.booleans(),
    ranks=st.none() | st.integers(1, 4),
    order=st.none() | st.sampled_from([Shuffled(), Bucketed([1, 2]), Bucketed([1, 2], max_tokens=9)]),
)
policies = st.builds(
    LoaderPolicy,
    training=st.booleans(),
    seed=st.integers(0, 2**40),
    distribute=st.booleans(),
    order=st.none() | st.sampled_from([Sequential(), Bucketed("length", max_tokens=9)]),
)
TRAIN, EVALUATE = LoaderPolicy(training=True), LoaderPolicy(training=False)


@given(facts, st.integers(1, 6), policies)
def test_there_is_a_plan_for_everything(seen: LoaderFacts, size: int, policy: LoaderPolicy) -> None:
    plan = plan_loader(seen, worlds(size), policy)
    assert isinstance(plan, (Rebuild, Stride, Keep, Refuse))
    if isinstance(plan, Refuse):
        assert len(plan.reason) > 20
        assert plan.reason.endswith(".")
        assert plan.got
    if isinstance(plan, Stride):
        assert size > 1
        assert policy.distribute
    if isinstance(plan, Rebuild) and not policy.training:
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
        (STREAM, 2, True, Stride),
        (STREAM, 2, False, Stride),
        (LoaderFacts(kind=LoaderKind.SUBCLASS, length=4, own_sampler=True, batches=4), 2, True, Stride),
        (LoaderFacts(kind=LoaderKind.ONCE), 1, True, Refuse),
        (LoaderFacts(kind=LoaderKind.ITERABLE), 1, True, Keep),
        (LoaderFacts(kind=LoaderKind.ITERABLE), 2, True, Stride),
        (attrs.evolve(OWN, ranks=4), 4, True, Keep),
        (attrs.evolve(OWN, ranks=1), 4, True, Stride),
        (attrs.evolve(OWN, ranks=3), 4, True, Refuse),
        (attrs.evolve(OWN, ranks=3), 1, True, Refuse),
        (attrs.evolve(MAP, order=Bucketed([1], max_tokens=9)), 1, True, Refuse),
        (attrs.evolve(MAP, order=Bucketed([1], max_tokens=9), batch_size=1), 1, True, Rebuild),
        (attrs.evolve(MAP, order=Bucketed([1])), 2, True, Rebuild),
        (attrs.evolve(MAP, order=Bucketed([1]), batch_size=None), 1, True, Refuse),
        (LoaderFacts(kind=LoaderKind.FOREIGN), 1, False, Refuse),
        (LoaderFacts(kind=LoaderKind.DATASET), 1, True, Refuse),
        (LoaderFacts(kind=LoaderKind.OTHER), 1, True, Refuse),
        (attrs.evolve(MAP, length=0), 1, True, Refuse),
        (attrs.evolve(MAP, length=None), 1, True, Refuse),
        (attrs.evolve(OWN, batches=0), 1, True, Refuse),
        (attrs.evolve(BATCHES, length=0), 1, False, Refuse),
    ],
)
def test_the_table(seen: LoaderFacts, size: int, training: bool, expected: type) -> None:
    assert type(plan_loader(seen, worlds(size), TRAIN if training else EVALUATE)) is expected


def test_a_rebuilt_loader_keeps_what_the_user_chose() -> None:
    plan = plan_loader(attrs.evolve(MAP, shuffle=True, drop_last=True), worlds(2), LoaderPolicy(training=True, seed=9))
    assert isinstance(plan, Rebuild)
    config = plan.config
    assert (config.length, config.batch_size, config.order, config.seed, config.tail) == (
        100,
        8,
        Shuffled(),
        9,
        Tail.DROP,
    )
    single = plan_loader(attrs.evolve(MAP, batch_size=None), worlds(1), TRAIN)
    assert isinstance(single, Rebuild)
    assert (single.config.batch_size, single.config.order, single.config.tail) == (1, Sequential(), Tail.PAD)


def test_a_stride_takes_this_ranks_batches() -> None:
    assert plan_loader(OWN, worlds(3, 2), TRAIN) == Stride(every=3, offset=2)


def test_without_distribution_every_rank_takes_all() -> None:
    plan = plan_loader(MAP, worlds(3, 2), LoaderPolicy(training=True, distribute=False))
    assert isinstance(plan, Rebuild)
    assert not plan.split
    assert plan_loader(OWN, worlds(3, 2), LoaderPolicy(training=True, distribute=False)) == Keep()


def test_an_order_of_the_trainers_goes_to_a_loader_that_has_none() -> None:
    policy = LoaderPolicy(training=True, order=Shuffled())
    plan = plan_loader(MAP, worlds(1), policy)
    assert isinstance(plan, Rebuild)
    assert plan.config.order == Shuffled()
    for seen in (OWN, attrs.evolve(MAP, order=Sequential()), BATCHES, STREAM, LoaderFacts(kind=LoaderKind.ITERABLE)):
        plan = plan_loader(seen, worlds(1), policy)
        assert isinstance(plan, Refuse)
        assert "Shuffled for" in plan.got


def test_what_a_loader_loses_is_said() -> None:
    iterable = LoaderFacts(kind=LoaderKind.ITERABLE)
    one, two = plan_loader(iterable, worlds(1), TRAIN), plan_loader(iterable, worlds(2), TRAIN)
    assert isinstance(one, Keep)
    assert isinstance(two, Stride)
    assert "reads its first batches again" in one.loses
    assert "each rank reads all of them" in two.loses
    assert plan_loader(attrs.evolve(iterable, stateful=True), worlds(1), TRAIN) == Keep()
    assert plan_loader(BATCHES, worlds(2), TRAIN) == Stride(every=2, offset=0)


def test_an_epoch_that_would_take_nothing_is_refused() -> None:
    dropping = SamplerConfig(length=15, batch_size=8, tail=Tail.DROP)
    refused = check_batches(dropping, worlds(2), 0)
    assert refused is not None
    assert "a step takes 16" in refused.got
    assert check_batches(dropping, worlds(1), 1) is None
    assert check_batches(attrs.evolve(dropping, tail=Tail.PAD), worlds(1), 0) is not None
    assert check_batches(attrs.evolve(dropping, tail=Tail.KEEP), worlds(1), 0) is None
