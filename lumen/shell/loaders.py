"""Loaders: reading what a user's loader is, and opening it as the plan says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lumen.core.loading import LoaderFacts, LoaderKind, Rebuild, Refuse, plan_loader
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources import OwnOrder, Planned, ReadyBatches, Source

io = paddle.io


def describe(loader: Any) -> LoaderFacts:
    """What a loader is; nothing is fetched from it.

    Args:
        loader: Whatever the user gave.
    """
    name = type(loader).__name__
    if isinstance(loader, io.DataLoader):
        return _describe_dataloader(loader, name)
    if type(loader).__module__.partition(".")[0] in ("torch", "torchdata", "tensorflow", "jax", "grain"):
        return LoaderFacts(kind=LoaderKind.FOREIGN, type_name=f"{type(loader).__module__.partition('.')[0]} {name}")
    if isinstance(loader, io.Dataset):
        return LoaderFacts(kind=LoaderKind.DATASET, type_name=name)
    if isinstance(loader, Iterator):
        return LoaderFacts(kind=LoaderKind.ONCE, type_name=name)
    if not hasattr(loader, "__iter__") or isinstance(loader, (str, bytes, dict, paddle.Tensor)):
        return LoaderFacts(kind=LoaderKind.OTHER, type_name=name)
    length = _length(loader)
    return LoaderFacts(kind=LoaderKind.STREAM if length is None else LoaderKind.BATCHES, type_name=name, length=length)


def _describe_dataloader(loader: Any, name: str) -> LoaderFacts:
    if isinstance(loader.dataset, io.IterableDataset):
        return LoaderFacts(kind=LoaderKind.ITERABLE, type_name=name, workers=loader.num_workers)
    sampler = loader.batch_sampler
    own_iteration = type(loader).__iter__ is not io.DataLoader.__iter__
    distributed = type(sampler) is io.DistributedBatchSampler
    inner = getattr(sampler, "sampler", None)
    standard = type(sampler) is io.BatchSampler and (
        type(inner) is io.SequenceSampler
        or (type(inner) is io.RandomSampler and not _draws_otherwise(inner, loader.dataset))
    )
    own_sampler = sampler is not None and not distributed and not standard
    return LoaderFacts(
        kind=LoaderKind.SUBCLASS if own_iteration else LoaderKind.MAP,
        type_name=name,
        length=_length(loader) if own_iteration else _length(loader.dataset),
        batch_size=None if sampler is None else getattr(sampler, "batch_size", None),
        shuffle=bool(sampler.shuffle) if distributed else type(inner) is io.RandomSampler,
        drop_last=bool(getattr(sampler, "drop_last", False)),
        own_sampler=own_sampler or own_iteration,
        batches=_length(loader) if own_iteration else _length(sampler) if own_sampler else None,
        workers=loader.num_workers,
    )


def _draws_otherwise(sampler: Any, dataset: Any) -> bool:
    """Whether a random sampler does more than shuffle: draws with replacement, another number, or by a generator."""
    return bool(
        getattr(sampler, "replacement", False)
        or getattr(sampler, "generator", None) is not None
        or getattr(sampler, "_num_samples", None) not in (None, _length(dataset))
    )


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return None


def open_source(loader: Any, world: World, *, training: bool, seed: int, name: str, distribute: bool = True) -> Source:
    """The batches of a loader for this rank.

    Args:
        loader: What the user gave; it is not changed, and its dataset is not copied.
        world: The ranks.
        training: Every rank takes equally many batches; else every sample is seen once.
        seed: Of the shuffled order and of the workers.
        name: The argument that an error names.
        distribute: Deal the data to the ranks.

    Raises:
        DataError: The loader cannot be used.
    """
    facts = describe(loader)
    plan = plan_loader(facts, world, training=training, seed=seed, distribute=distribute)
    if isinstance(plan, Refuse):
        raise DataError(name, got=plan.got, do=plan.reason)
    seen = world if distribute else World.single()
    if isinstance(plan, Rebuild):
        return Planned(loader, plan, seen, rank=world.rank, unbatched=facts.batch_size is None)
    if facts.kind is LoaderKind.MAP:
        return OwnOrder(loader, plan, seen, seed=seed, training=training, batches=facts.batches)
    batches = facts.length if facts.batches is None else facts.batches
    return ReadyBatches(loader, plan, seen, training=training, batches=batches)
