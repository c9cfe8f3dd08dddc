"""The dataloader transformation: what is done with a user's loader, as a value.

| loader                                         | one rank | several ranks, training | several ranks, evaluation |
|------------------------------------------------|----------|-------------------------|---------------------------|
| DataLoader over a map-style dataset, Paddle's own samplers | rebuild | rebuild | rebuild |
| the same with a sampler or batch sampler of the user's | keep | stride | stride |
| a subclass of DataLoader with its own iteration, or a list of ready batches | keep | stride | stride |
| something to iterate that has no length        | keep     | refuse                  | stride                    |
| a generator, an IterableDataset, another framework's loader, a dataset, anything empty | refuse | refuse | refuse |
"""

from __future__ import annotations

import enum

import attrs

from lumen.core.sampling import SamplerConfig, Sequential, Shuffled, Tail
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
        own_sampler: Whether a sampler that is not Paddle's own orders it.
        batches: Batches that its own sampler announces; None: not known.
        workers: Worker processes.
    """

    kind: LoaderKind
    type_name: str = ""
    length: int | None = None
    batch_size: int | None = None
    shuffle: bool = False
    drop_last: bool = False
    own_sampler: bool = False
    batches: int | None = None
    workers: int = 0


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
    """Take every n-th batch of the loader's own order, on each rank another.

    Args:
        every: The number of ranks.
        offset: This rank.
    """

    every: int
    offset: int


@attrs.frozen(kw_only=True)
class Keep:
    """Take the loader's batches as they come."""


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
    LoaderKind.ITERABLE: "Use a paddle.io.Dataset with __getitem__ and __len__: an exact resume and an exact split "
    "over ranks need to reach any sample.",
    LoaderKind.ONCE: "Give a list of batches, or a paddle.io.DataLoader: an epoch must be able to start again.",
    LoaderKind.DATASET: "Wrap it: paddle.io.DataLoader(dataset, batch_size=...).",
    LoaderKind.FOREIGN: "Use paddle.io.DataLoader; a torch dataset with __getitem__ and __len__ that gives numpy "
    "arrays can be passed to it as it is.",
    LoaderKind.OTHER: "Give a paddle.io.DataLoader, or a list of ready batches.",
}


def plan_loader(
    facts: LoaderFacts, world: World, *, training: bool, seed: int = 0, distribute: bool = True
) -> LoaderPlan:
    """What is done with a loader; never raises.

    Args:
        facts: What was seen of it.
        world: The ranks.
        training: Every rank must take equally many batches; else every sample must be seen once.
        seed: Of the shuffled order.
        distribute: Deal the data to the ranks; else every rank takes all of it.

    Example:
        >>> facts = LoaderFacts(kind=LoaderKind.MAP, length=10, batch_size=4, shuffle=True)
        >>> plan_loader(facts, World.single(), training=True).config.tail
        <Tail.PAD: 'pad'>
        >>> plan_loader(LoaderFacts(kind=LoaderKind.ONCE), World.single(), training=True).got
        'a generator, which can be iterated only once'
    """
    kind = facts.kind
    if kind in _INSTEAD:
        return Refuse(got=f"{kind.value} ({facts.type_name})" if facts.type_name else kind.value, reason=_INSTEAD[kind])
    if facts.length == 0 or (facts.own_sampler and facts.batches == 0):
        return Refuse(got=f"{kind.value} that is empty", reason="Give at least one sample.")
    if kind is LoaderKind.MAP and not facts.own_sampler:
        return _rebuild(facts, world, training=training, seed=seed, distribute=distribute)
    if world.size == 1 or not distribute:
        return Keep()
    if training and facts.length is None and facts.batches is None:
        return Refuse(
            got=f"{kind.value}, on {world.size} ranks",
            reason="Give it a __len__, or use a map-style dataset: every rank must take equally many batches.",
        )
    return Stride(every=world.size, offset=world.rank)


def _rebuild(facts: LoaderFacts, world: World, *, training: bool, seed: int, distribute: bool) -> LoaderPlan:
    if facts.length is None:
        return Refuse(got=f"{facts.kind.value} without a length", reason="Give the dataset a __len__.")
    tail = Tail.KEEP if not training else Tail.DROP if facts.drop_last else Tail.PAD
    config = SamplerConfig(
        length=facts.length,
        batch_size=facts.batch_size or 1,
        order=Shuffled() if facts.shuffle else Sequential(),
        seed=seed,
        tail=tail,
    )
    whole = config.batch_size * (world.size if distribute else 1)
    if tail is Tail.DROP and facts.length < whole:
        return Refuse(
            got=f"{facts.length} samples with drop_last=True, of which a step takes {whole}",
            reason="Use drop_last=False, a smaller batch_size or fewer ranks: nothing would be left to train on.",
        )
    return Rebuild(config=config, split=distribute)
