"""The dataloader transformation: what is done with a user's loader, as a value.

`DECISIONS` is the table; where data are not to be dealt to the ranks (`use_distributed_sampler=False`), all ranks do
what one rank does.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from lumen.core.orders.base import Order, Sequential, Shuffled
from lumen.core.orders.bucketed import Bucketed
from lumen.core.sampling import SamplerConfig, Tail
from lumen.core.world import World


class LoaderKind(enum.Enum):
    """What a loader turned out to be."""

    MAP = "a DataLoader over a map-style dataset"
    ITERABLE = "a DataLoader over an IterableDataset"
    SUBCLASS = "a DataLoader with its own iteration"
    BATCHES = "a list of ready batches"
    STREAM = "something to iterate without a length"
    ONCE = "a generator, which can be iterated only once"
    DATASET = "a dataset"
    FOREIGN = "another framework's loader"
    OTHER = "nothing to iterate"


@attrs.frozen(kw_only=True)
class LoaderFacts:
    """What was seen of a loader.

    Args:
        kind: What it is.
        type_name: Its class, for messages.
        length: Samples of the dataset, or batches of a list; None: not known.
        batch_size: Samples in a batch; None: items come one by one.
        shuffle: Whether Paddle's random sampler orders it.
        drop_last: Whether a short last batch is dropped.
        order: The order of lumen's that it was given.
        own_sampler: Whether a sampler orders it that is neither Paddle's own nor an order of lumen's.
        stateful: Whether that sampler, or an iterable dataset, has `state_dict` and `load_state_dict`.
        ranks: To how many ranks that sampler deals by itself; None: it does not say.
        batches: Batches that its own sampler announces; None: not known.
    """

    kind: LoaderKind
    type_name: str = ""
    length: int | None = None
    batch_size: int | None = None
    shuffle: bool = False
    drop_last: bool = False
    order: Order | None = None
    own_sampler: bool = False
    stateful: bool = False
    ranks: int | None = None
    batches: int | None = None


@attrs.frozen(kw_only=True)
class LoaderPolicy:
    """What the run wants of a loader.

    Args:
        training: Every rank must take equally many batches; else every sample must be seen once.
        seed: Of the orders.
        distribute: Deal the data to the ranks; else every rank takes all of it.
        order: In which order, if the loader itself has none but Paddle's.
    """

    training: bool
    seed: int = 0
    distribute: bool = True
    order: Order | None = None


@attrs.frozen(kw_only=True)
class Rebuild:
    """Sample the dataset as this configuration says, with all other settings of the loader.

    Args:
        config: How.
        split: Deal the samples to the ranks; else every rank takes all.
    """

    config: SamplerConfig
    split: bool = True


@attrs.frozen(kw_only=True)
class Stride:
    """Take every n-th batch of the loader's own order, on each rank another; of an iterable dataset every n-th sample.

    Args:
        every: The number of ranks.
        offset: This rank.
        loses: What is not possible with such a loader; empty: nothing.
    """

    every: int
    offset: int
    loses: str = ""


@attrs.frozen(kw_only=True)
class Keep:
    """Take the loader's batches as they come.

    Args:
        loses: What is not possible with such a loader; empty: nothing.
    """

    loses: str = ""


@attrs.frozen(kw_only=True)
class Refuse:
    """The loader cannot be used.

    Args:
        got: What it is.
        reason: What to do instead.
    """

    got: str
    reason: str


LoaderPlan = Rebuild | Stride | Keep | Refuse


class Case(enum.Enum):
    """What matters of a loader: the rows of the table."""

    SAMPLED = "DataLoader over a map-style dataset, in an order of Paddle's samplers or of lumen's"
    OWN_ORDER = "the same with any other sampler or batch sampler"
    DEALT = "the same with a sampler that deals to just these ranks itself"
    DEALT_OTHERWISE = "the same with a sampler that deals to another number of ranks"
    ITERABLE = "DataLoader over an `IterableDataset`"
    ITERATED = "a subclass of DataLoader with its own iteration, ready batches, anything that can be iterated anew"
    UNUSABLE = "a generator, another framework's loader, a dataset, anything empty"


DECISIONS: Mapping[Case, tuple[type, type]] = {
    Case.SAMPLED: (Rebuild, Rebuild),
    Case.OWN_ORDER: (Keep, Stride),
    Case.DEALT: (Keep, Keep),
    Case.DEALT_OTHERWISE: (Refuse, Refuse),
    Case.ITERABLE: (Keep, Stride),
    Case.ITERATED: (Keep, Stride),
    Case.UNUSABLE: (Refuse, Refuse),
}
"""What is done with each kind of loader on one rank, and on several."""

_INSTEAD = {
    LoaderKind.ONCE: "Give a list of batches, or a paddle.io.DataLoader: an epoch must be able to start again.",
    LoaderKind.DATASET: "Wrap it: paddle.io.DataLoader(dataset, batch_size=...).",
    LoaderKind.FOREIGN: "Use paddle.io.DataLoader; a torch dataset with __getitem__ and __len__ that gives numpy "
    "arrays can be passed to it as it is.",
    LoaderKind.OTHER: "Give a paddle.io.DataLoader, or a list of ready batches.",
}
_AGAIN = "it cannot be entered in the middle: a resume reads its first batches again and drops them"
_EVERYWHERE = ", and each rank reads all of them"


def case_of(facts: LoaderFacts, world: World, *, distribute: bool = True) -> Case:
    """The row of the table that a loader belongs to.

    Args:
        facts: What was seen of it.
        world: The ranks.
        distribute: Whether data are to be dealt to them.
    """
    if facts.kind in _INSTEAD or facts.length == 0 or (facts.own_sampler and facts.batches == 0):
        return Case.UNUSABLE
    if facts.kind is LoaderKind.ITERABLE:
        return Case.ITERABLE
    if facts.kind is not LoaderKind.MAP:
        return Case.ITERATED
    if not facts.own_sampler:
        return Case.SAMPLED
    if facts.ranks in (None, 1) or not distribute:
        return Case.OWN_ORDER
    return Case.DEALT if facts.ranks == world.size else Case.DEALT_OTHERWISE


def plan_loader(facts: LoaderFacts, world: World, policy: LoaderPolicy) -> LoaderPlan:
    """What is done with a loader; never raises.

    Args:
        facts: What was seen of it.
        world: The ranks.
        policy: What the run wants of it.

    Example:
        >>> facts = LoaderFacts(kind=LoaderKind.MAP, length=10, batch_size=4, shuffle=True)
        >>> plan_loader(facts, World.single(), LoaderPolicy(training=True)).config.tail
        <Tail.PAD: 'pad'>
        >>> plan_loader(LoaderFacts(kind=LoaderKind.ONCE), World.single(), LoaderPolicy(training=True)).got
        'a generator, which can be iterated only once'
    """
    case = case_of(facts, world, distribute=policy.distribute)
    several = world.size > 1 and policy.distribute
    decision = DECISIONS[case][several]
    if decision is Refuse:
        return _refused(facts, case, world)
    if decision is Rebuild:
        return _rebuild(facts, policy)
    if policy.order is not None:
        return Refuse(
            got=f"{type(policy.order).__name__} for {_named(facts)}, which has an order of its own",
            reason="Leave one of them out.",
        )
    loses = ""
    if facts.kind in (LoaderKind.ITERABLE, LoaderKind.SUBCLASS, LoaderKind.STREAM) and not facts.stateful:
        loses = _AGAIN + (_EVERYWHERE if several else "")
    return Stride(every=world.size, offset=world.rank, loses=loses) if decision is Stride else Keep(loses=loses)


def _refused(facts: LoaderFacts, case: Case, world: World) -> Refuse:
    if case is Case.DEALT_OTHERWISE:
        return Refuse(
            got=f"{_named(facts)} whose sampler deals to {facts.ranks} ranks, on {world.size}",
            reason="Let it deal to all ranks of the run, or to none: lumen deals a plain sampler's batches itself.",
        )
    if facts.kind in _INSTEAD:
        return Refuse(got=_named(facts), reason=_INSTEAD[facts.kind])
    return Refuse(got=f"{facts.kind.value} that is empty", reason="Give at least one sample.")


def _named(facts: LoaderFacts) -> str:
    return f"{facts.kind.value} ({facts.type_name})" if facts.type_name else facts.kind.value


def _rebuild(facts: LoaderFacts, policy: LoaderPolicy) -> LoaderPlan:
    if facts.length is None:
        return Refuse(got=f"{facts.kind.value} without a length", reason="Give the dataset a __len__.")
    if facts.order is not None and policy.order is not None:
        return Refuse(
            got=f"{type(policy.order).__name__} for a loader that has {type(facts.order).__name__}",
            reason="Leave one of them out.",
        )
    order = facts.order or policy.order or (Shuffled() if facts.shuffle else Sequential())
    if isinstance(order, Bucketed) and facts.batch_size is None:
        return Refuse(got="Bucketed with batch_size=None", reason="Give a batch_size, or use another order.")
    if isinstance(order, Bucketed) and order.max_tokens is not None and facts.batch_size not in (None, 1):
        return Refuse(
            got=f"Bucketed(max_tokens={order.max_tokens}) with batch_size={facts.batch_size}",
            reason="Leave batch_size out: the tokens decide; Bucketed(max_samples=...) limits the samples in a batch.",
        )
    tail = Tail.KEEP if not policy.training else Tail.DROP if facts.drop_last else Tail.PAD
    config = SamplerConfig(
        length=facts.length, batch_size=facts.batch_size or 1, order=order, seed=policy.seed, tail=tail
    )
    return Rebuild(config=config, split=policy.distribute)


def check_batches(config: SamplerConfig, world: World, batches: int) -> Refuse | None:
    """Refuses an epoch in which nothing would be left to train on.

    Args:
        config: How the dataset is sampled.
        world: The ranks that it is dealt to.
        batches: Batches of an epoch.
    """
    if batches or config.tail is Tail.KEEP:
        return None
    if config.tail is Tail.DROP:
        return Refuse(
            got=f"{config.length} samples with drop_last=True, of which a step takes {config.batch_size * world.size}",
            reason="Use drop_last=False, a smaller batch_size or fewer ranks: nothing would be left to train on.",
        )
    return Refuse(
        got=f"{type(config.order).__name__} of which an epoch takes nothing", reason="Give at least one sample."
    )
