"""Loaders: reading what a user's loader is, and opening it as the plan says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import attrs

from lumen.core.combining import CombinedLoader
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
from lumen.core.orders.base import Order
from lumen.core.sampling import Tail
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Source
from lumen.shell.sources.combined import Combined
from lumen.shell.sources.own_order import OwnOrder, stateful_part
from lumen.shell.sources.planned import Planned
from lumen.shell.sources.ready import ReadyBatches
from lumen.shell.sources.streamed import Streamed
from lumen.shell.streams import is_stateful

_log = logging.getLogger("lumen")

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
    sampler = loader.batch_sampler
    own_iteration = type(loader).__iter__ is not io.DataLoader.__iter__
    if isinstance(loader.dataset, io.IterableDataset) and not own_iteration:
        return LoaderFacts(
            kind=LoaderKind.ITERABLE,
            type_name=name,
            length=_length(loader.dataset),
            batch_size=None if sampler is None else sampler.batch_size,
            drop_last=bool(loader.drop_last),
            stateful=is_stateful(loader.dataset),
        )
    if isinstance(sampler, Iterator) or isinstance(getattr(sampler, "sampler", None), Iterator):
        return LoaderFacts(kind=LoaderKind.ONCE, type_name=f"the sampler of a {name}")
    order = getattr(sampler, "order", None)
    distributed = type(sampler) is io.DistributedBatchSampler
    inner = getattr(sampler, "sampler", None)
    standard = type(sampler) is io.BatchSampler and (
        type(inner) is io.SequenceSampler
        or (type(inner) is io.RandomSampler and not _draws_otherwise(inner, loader.dataset))
    )
    own_sampler = sampler is not None and not distributed and not standard and not isinstance(order, Order)
    return LoaderFacts(
        kind=LoaderKind.SUBCLASS if own_iteration else LoaderKind.MAP,
        type_name=name,
        length=_length(loader) if own_iteration else _length(loader.dataset),
        batch_size=None if sampler is None else getattr(sampler, "batch_size", None),
        shuffle=bool(sampler.shuffle) if distributed else type(inner) is io.RandomSampler,
        drop_last=bool(getattr(sampler, "drop_last", False)),
        order=order if isinstance(order, Order) and not own_iteration else None,
        own_sampler=own_sampler or own_iteration,
        stateful=stateful_part(sampler) is not None,
        ranks=_ranks(sampler, inner) if own_sampler else None,
        batches=_length(loader) if own_iteration else _length(sampler) if own_sampler else None,
    )


def _ranks(*samplers: Any) -> int | None:
    """To how many ranks a sampler deals by itself, if it says so by one of the usual names."""
    for sampler in samplers:
        for name in ("nranks", "num_replicas"):
            value = getattr(sampler, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


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
    except (TypeError, ValueError, NotImplementedError, AttributeError, RuntimeError):
        return None


def plan_for(loader: Any, world: World, policy: LoaderPolicy, name: str) -> tuple[LoaderFacts, Rebuild | Stride | Keep]:
    """What is done with a loader; nothing is opened yet.

    Args:
        loader: What the user gave.
        world: The ranks.
        policy: What the run wants of it.
        name: The argument that an error names.

    Raises:
        DataError: The loader cannot be used.
    """
    facts = describe(loader)
    plan = plan_loader(facts, world, policy)
    if isinstance(plan, Refuse):
        raise DataError(name, got=plan.got, do=plan.reason)
    return facts, plan


def open_source(loader: Any, world: World, policy: LoaderPolicy, name: str) -> Source:
    """The batches of a loader for this rank.

    Args:
        loader: What the user gave; it is not changed, and its dataset is not copied.
        world: The ranks.
        policy: What the run wants of it.
        name: The argument that an error names.

    Raises:
        DataError: The loader cannot be used.
        ConfigError: An order does not fit the dataset.
    """
    facts, plan = plan_for(loader, world, policy, name)
    if isinstance(plan, Rebuild):
        return _planned(loader, facts, plan, world, name)
    if plan.loses and policy.training and world.rank == 0:
        _log.warning("%s (%s): %s.", name, facts.type_name, plan.loses)
    fill = policy.training and policy.distribute
    if facts.kind is LoaderKind.ITERABLE:
        tail = Tail.KEEP if not policy.training else Tail.DROP if facts.drop_last else Tail.PAD
        return Streamed(loader, plan, world, seed=policy.seed, tail=tail, samples=facts.length)
    if facts.kind is LoaderKind.MAP:
        return OwnOrder(loader, plan, world, seed=policy.seed, fill=fill, announced=facts.batches)
    batches = facts.length if facts.batches is None else facts.batches
    return ReadyBatches(loader, plan, world, seed=policy.seed, fill=fill, announced=batches)


def _planned(loader: Any, facts: LoaderFacts, plan: Rebuild, world: World, name: str) -> Source:
    seen = world if plan.split else World.single()
    config = attrs.evolve(plan.config, order=plan.config.order.bind(loader.dataset))
    source = Planned(
        loader,
        attrs.evolve(plan, config=config),
        seen,
        rank=world.rank,
        unbatched=facts.batch_size is None,
    )
    refused = check_batches(config, seen, source.batches or 0) if config.tail is not Tail.KEEP else None
    if refused is not None:
        raise DataError(name, got=refused.got, do=refused.reason)
    return source


def combine(loaders: Any) -> CombinedLoader | None:
    """Several loaders as one, if that is what the user gave.

    Args:
        loaders: A `CombinedLoader`, a dict, or a list with a DataLoader in it; any other list is a list of batches.
    """
    if isinstance(loaders, CombinedLoader):
        return loaders
    several = isinstance(loaders, dict) or (
        isinstance(loaders, (list, tuple)) and any(isinstance(one, io.DataLoader) for one in loaders)
    )
    return CombinedLoader(loaders) if several and loaders else None


def each_loader(loaders: Any, name: str) -> list[tuple[Any, str]]:
    """The loaders that the user gave, each with what errors call it.

    Args:
        loaders: One, or several.
        name: The argument.
    """
    combined = combine(loaders)
    if combined is None:
        return [(loaders, name)]
    keys = map(repr, combined.loaders) if isinstance(combined.loaders, dict) else combined.names
    return [(one, f"{name}[{key}]") for one, key in zip(combined.each, keys, strict=True)]


def open_training(loaders: Any, world: World, policy: LoaderPolicy, name: str) -> Source:
    """The batches of one or several training loaders for this rank.

    Args:
        loaders: What the user gave.
        world: The ranks.
        policy: What the run wants of each.
        name: The argument that an error names.

    Raises:
        DataError: A loader cannot be used.
        ConfigError: An order does not fit its dataset.
    """
    combined = combine(loaders)
    sources = [open_source(loader, world, policy, named) for loader, named in each_loader(loaders, name)]
    return sources[0] if combined is None else Combined(combined, sources)
