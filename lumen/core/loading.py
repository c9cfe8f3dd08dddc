"""The dataloader transformation: what is done with a user's loader, as a value.

| loader                                                     | one rank | several ranks |
|------------------------------------------------------------|----------|---------------|
| DataLoader over a map-style dataset, Paddle's samplers or an order of lumen's | rebuild | rebuild |
| the same with a sampler or batch sampler of the user's     | keep     | stride        |
| the same with a sampler that deals to just these ranks itself | keep  | keep          |
| the same with a sampler that deals to another number of ranks | refuse | refuse       |
| DataLoader over an IterableDataset                         | keep     | stride        |
| a subclass of DataLoader with its own iteration, a list of ready batches, anything to iterate anew | keep | stride |
| a generator, another framework's loader, a dataset, anything empty | refuse | refuse |

Where data are not to be dealt to the ranks (`use_distributed_sampler=False`), all ranks do what one rank does.
"""

from __future__ import annotations

import enum

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

_INSTEAD = {
    LoaderKind.ONCE: "Give a list of batches, or a paddle.io.DataLoader: an epoch must be able to start again.",
    LoaderKind.DATASET: "Wrap it: paddle.io.DataLoader(dataset, batch_size=...).",
    LoaderKind.FOREIGN: "Use paddle.io.DataLoader; a torch dataset with __getitem__ and __len__ that gives numpy "
    "arrays can be passed to it as it is.",
    LoaderKind.OTHER: "Give a paddle.io.DataLoader, or a list of ready batches.",
}
_AGAIN = "it cannot be entered in the middle: a resume reads its first batches again and drops them"
_EVERYWHERE = ", and each rank reads all of them"


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
    kind = facts.kind
    if kind in _INSTEAD:
        return Refuse(got=_named(facts), reason=_INSTEAD[kind])
    if facts.length == 0 or (facts.own_sampler and facts.batches == 0):
        return Refuse(got=f"{kind.value} that is empty", reason="Give at least one sample.")
    if kind is LoaderKind.MAP and not facts.own_sampler:
        return _rebuild(facts, policy)
    if policy.order is not None:
        return Refuse(
            got=f"{type(policy.order).__name__} for {_named(facts)}, which has an order of its own",
            reason="Leave one of them out.",
        )
    if kind is LoaderKind.MAP and facts.ranks is not None and policy.distribute:
        return _dealt_by_itself(facts, world)
    loses = ""
    if kind in (LoaderKind.ITERABLE, LoaderKind.SUBCLASS, LoaderKind.STREAM) and not facts.stateful:
        loses = _AGAIN + (_EVERYWHERE if world.size > 1 and policy.distribute else "")
    if world.size == 1 or not policy.distribute:
        return Keep(loses=loses)
    return Stride(every=world.size, offset=world.rank, loses=loses)


def _named(facts: LoaderFacts) -> str:
    return f"{facts.kind.value} ({facts.type_name})" if facts.type_name else facts.kind.value


def _dealt_by_itself(facts: LoaderFacts, world: World) -> LoaderPlan:
    if facts.ranks in (1, world.size):
        return Keep() if facts.ranks == world.size else Stride(every=world.size, offset=world.rank)
    return Refuse(
        got=f"{_named(facts)} whose sampler deals to {facts.ranks} ranks, on {world.size}",
        reason="Let it deal to all ranks of the run, or to none: lumen deals the batches of a plain sampler itself.",
    )


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
