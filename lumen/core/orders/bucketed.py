"""Bucketed: batches of samples of similar length, in random order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import (
    Arrangement,
    Given,
    Order,
    Shuffled,
    Values,
    bound,
    check_count,
    check_order,
    whole,
)
from lumen.core.orders.keys import Meaning, bind_values, given_field
from lumen.core.permute import Integers, hashes
from lumen.errors import ConfigError

_BUCKETS = 0x6275636B  # keeps these draws apart from other uses of (seed, epoch)


@attrs.frozen
class Cut:
    """A stretch of an epoch that was dealt in one way, before the run went on in another.

    Args:
        end: Samples of the epoch consumed at its end.
        ranks: The number of ranks.
        batch_size: Samples per rank and batch; the order's `max_tokens` decides where it is set.
        max_tokens: Of the order.
        max_samples: Of the order.
        bucket: Of the order.
    """

    end: int
    ranks: int
    batch_size: int
    max_tokens: int | None = None
    max_samples: int | None = None
    bucket: int = 1


@attrs.frozen(eq=False)
class Grouped:
    """An epoch written out, with the batches in it.

    Args:
        samples: The order.
        bounds: Where each batch of one rank starts, and the end; None: wherever the batch size says.
        groups: Number of the first batch of each step, and the number of batches.
    """

    samples: Integers
    bounds: Integers | None = None
    groups: Integers | None = None


@attrs.frozen
class Bucketed(Order):
    """Samples of similar length together, in random batches: little padding, and still another order in each epoch.

    Samples are sorted by length (in random order among equals) and cut into buckets; they are shuffled inside each
    bucket, and then whole steps (a batch for each rank) are shuffled among each other. So the ranks get similar lengths
    in the same step, and no rank has a shard of its own.

    Args:
        by: The length of each sample, >= 0: an array, a function of a sample, or a column (of texts and arrays the
            length).
        max_tokens: Most tokens in a batch of one rank, padding included (samples times the longest of them): batches
            then have different numbers of samples, and every rank has equally many. None: `batch_size` samples.
        max_samples: Most samples in such a batch; None: no limit.
        bucket: Steps in a bucket, >= 1: more are more random, fewer pad less.
        of: Which samples.

    Raises:
        ConfigError: A value is out of range, or with `max_tokens` a sample is longer than that.

    Example:
        >>> order = Bucketed([1, 9, 1, 9, 1, 9], bucket=1)
        >>> grouped = order.group(6, seed=0, epoch=0, cuts=[], ranks=1, batch_size=3)
        >>> sorted(tuple(sorted(grouped.samples[i : i + 3].tolist())) for i in (0, 3))
        [(0, 2, 4), (1, 3, 5)]
    """

    by: Given = given_field("Bucketed(by)", Meaning.SIZE)
    max_tokens: int | None = attrs.field(default=None, kw_only=True)
    max_samples: int | None = attrs.field(default=None, kw_only=True)
    bucket: int = attrs.field(default=16, kw_only=True)
    of: Order = attrs.field(factory=Shuffled, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_count(self.max_tokens, "Bucketed(max_tokens)", 1, optional=True)
        check_count(self.max_samples, "Bucketed(max_samples)", 1, optional=True)
        check_count(self.bucket, "Bucketed(bucket)", 1)
        check_order(self.of, "Bucketed(of)")
        if self.max_samples is not None and self.max_tokens is None:
            raise ConfigError(
                "Bucketed(max_samples)", got=self.max_samples, allowed="None, or with max_tokens", do="Use batch_size."
            )

    def bind(self, dataset: Any) -> Order:
        """See `Order.bind`."""
        return bind_values(self, dataset, "by", Meaning.SIZE)

    @property
    def fingerprint(self) -> str:
        """See `Order.fingerprint`; how it is cut is in the cuts, and may change inside an epoch."""
        plain = attrs.evolve(self, max_tokens=None, max_samples=None, bucket=1)
        return Order.fingerprint.fget(plain)  # type: ignore[attr-defined, no-any-return]

    def arrange(self, length: int, seed: int, epoch: int) -> Arrangement:
        """Refused: inside another order its batches would be torn apart."""
        raise ConfigError(
            "Bucketed", got="a place inside another order", do="Give that order to it: Bucketed(by, of=...)."
        )

    def cut(self, end: int, ranks: int, batch_size: int) -> Cut:
        """How the samples up to some point were dealt.

        Args:
            end: Samples consumed at that point.
            ranks: The number of ranks.
            batch_size: Samples per rank and batch.
        """
        return Cut(end, ranks, batch_size, self.max_tokens, self.max_samples, self.bucket)

    def group(self, length: int, seed: int, epoch: int, *, cuts: Sequence[Cut], ranks: int, batch_size: int) -> Grouped:
        """The epoch's order and its batches.

        Args:
            length: Samples in the dataset.
            seed: The run's seed.
            epoch: The epoch.
            cuts: How the epoch was dealt so far, where it was otherwise than now.
            ranks: The number of ranks.
            batch_size: Samples per rank and batch, without `max_tokens`.

        Raises:
            ConfigError: A sample is longer than `max_tokens`, or a length is negative.
        """
        rest = whole(self.of.arrange(length, seed, epoch))
        lengths = bound(self.by, "Bucketed(by)", length)
        if len(rest) and lengths[rest].min() < 0:
            wrong = int(rest[np.argmin(lengths[rest])])
            raise ConfigError("Bucketed(by)", got=f"{lengths[wrong]} for sample {wrong}", allowed="lengths >= 0")
        done: list[Integers] = []
        start = 0
        for number, cut in enumerate(cuts):
            samples = _group(rest, lengths, cut, (seed, epoch, _BUCKETS, number)).samples
            done.append(samples[: cut.end - start])
            rest, start = samples[cut.end - start :], cut.end
        now = _group(rest, lengths, self.cut(start, ranks, batch_size), (seed, epoch, _BUCKETS, len(cuts)))
        bounds = None if now.bounds is None else now.bounds + start
        return Grouped(np.concatenate([*done, now.samples]), bounds, now.groups)


def _group(samples: Integers, lengths: Values, cut: Cut, key: tuple[int, ...]) -> Grouped:
    """Some samples in a random order of steps, each of similar lengths."""
    n = len(samples)
    if n == 0:
        none = np.zeros(1, np.int64) if cut.max_tokens is not None else None
        return Grouped(samples, none, none)
    words = hashes(np.arange(n + 2, dtype=np.int64), *key)
    samples = samples[np.lexsort((words[:n], lengths[samples]))]
    # buckets begin elsewhere in each epoch
    bucket = (_steps(samples, lengths, cut) + int(words[n] % np.uint64(cut.bucket))) // cut.bucket
    samples = samples[np.lexsort((hashes(np.arange(n, dtype=np.int64), *key, 1), bucket))]
    if cut.max_tokens is None:
        steps = _shuffled(n, cut.ranks * cut.batch_size, words[n + 1], key)
        return Grouped(samples[_spans(steps)])
    bounds = _batches(samples, lengths, cut)
    steps = _shuffled(len(bounds) - 1, cut.ranks, words[n + 1], key)
    batches = _spans(steps)
    spans = np.stack([bounds[batches], bounds[batches + 1]], axis=1)
    return Grouped(samples[_spans(spans)], _sums(spans[:, 1] - spans[:, 0]), _sums(steps[:, 1] - steps[:, 0]))


def _steps(samples: Integers, lengths: Values, cut: Cut) -> Integers:
    """The step that each sample would be in, if they were dealt in this order."""
    if cut.max_tokens is None:
        return np.arange(len(samples), dtype=np.int64) // (cut.ranks * cut.batch_size)
    sizes = np.diff(_batches(samples, lengths, cut))
    return np.repeat(np.arange(len(sizes), dtype=np.int64) // cut.ranks, sizes)


def _shuffled(n: int, step: int, word: Any, key: tuple[int, ...]) -> Integers:
    """Begin and end of each step, in random order.

    The one that is not full is any of them, so that other samples are in it each epoch; it comes last.
    """
    starts = np.arange(0, n, step, dtype=np.int64)
    missing = len(starts) * step - n
    short = int(word % np.uint64(len(starts)))
    starts -= np.where(np.arange(len(starts)) > short, missing, 0)
    steps = np.stack([starts, np.append(starts[1:], n)], axis=1)
    steps = steps[np.argsort(hashes(np.arange(len(starts), dtype=np.int64), *key, 2), kind="stable")]
    sizes = steps[:, 1] - steps[:, 0]
    return steps[np.argsort(sizes < sizes.max(), kind="stable")]


def _spans(spans: Integers) -> Integers:
    """All numbers of several ranges, given as begin and end, one range after the other."""
    sizes = spans[:, 1] - spans[:, 0]
    return np.arange(int(sizes.sum()), dtype=np.int64) + np.repeat(spans[:, 0] - _sums(sizes)[:-1], sizes)


def _sums(sizes: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _batches(samples: Integers, lengths: Values, cut: Cut) -> Integers:
    """Where batches start that take as many samples in a row as the tokens allow, and the end."""
    tokens = int(cut.max_tokens or 0)
    sizes = np.maximum(lengths[samples], 1)
    if sizes.max() > tokens:
        wrong = int(samples[np.argmax(sizes)])
        raise ConfigError(
            "Bucketed(max_tokens)",
            got=f"{tokens}; sample {wrong} alone has {lengths[wrong]} tokens",
            allowed="at least the longest sample",
            do="Raise it, or leave the sample out: Bucketed(..., of=Subset(...)).",
        )
    bounds, start, n = [0], 0, len(samples)
    while start < n:
        most = int(min(tokens // sizes[start], cut.max_samples or n, n - start))
        costs = np.maximum.accumulate(sizes[start : start + most]) * np.arange(1, most + 1)
        start += int(np.searchsorted(costs, tokens, side="right"))
        bounds.append(start)
    return np.asarray(bounds, dtype=np.int64)
