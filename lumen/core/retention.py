"""Decisions of the built-in callbacks: which checkpoints to keep, and when patience is over."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Literal

import attrs

from lumen.errors import ConfigError, did_you_mean

Mode = Literal["min", "max"]


def check_mode(mode: str) -> Mode:
    """The mode, if it is one.

    Raises:
        ConfigError: It is neither "min" nor "max".
    """
    if mode == "min":
        return "min"
    if mode == "max":
        return "max"
    raise ConfigError("mode", got=mode, allowed="'min' or 'max'", do=did_you_mean(str(mode), ["min", "max"]))


def check_monitor(argument: str, monitor: str, evaluated: Mapping[str, float]) -> None:
    """Refuses a monitored name ahead of training, where that is certain enough: it begins as a validation value does.

    Args:
        argument: What an error names.
        monitor: The monitored name.
        evaluated: All values of a validation; empty: not known yet.

    Raises:
        ConfigError: The name begins with "val", and no validation logs it.
    """
    if evaluated and monitor.startswith("val") and monitor not in evaluated:
        raise ConfigError(
            argument,
            got=monitor,
            allowed="a value logged with self.log",
            do=did_you_mean(monitor, evaluated),
        )


def better(mode: Mode, score: float, than: float | None) -> bool:
    """Whether a score beats another; NaN beats nothing, and everything beats NaN or no score at all.

    Example:
        >>> better("max", 0.9, 0.8), better("min", float("nan"), 1.0), better("min", 1.0, None)
        (True, False, True)
    """
    if math.isnan(score):
        return False
    if than is None or math.isnan(than):
        return True
    return score < than if mode == "min" else score > than


@attrs.frozen(kw_only=True)
class Kept:
    """One checkpoint that is kept.

    Args:
        name: Its folder's name.
        score: The monitored value of the weights in it; None without a monitor.
        step: The step after which it was saved.
    """

    name: str
    score: float | None
    step: int


@attrs.frozen(kw_only=True)
class TopK:
    """The best checkpoints so far.

    Args:
        k: How many to keep; -1: all, 0: none.
        mode: Whether small or large scores are good.
        kept: Those kept, the best first.
    """

    k: int
    mode: Mode = "min"
    kept: tuple[Kept, ...] = ()

    @property
    def best(self) -> Kept | None:
        """The best one, if its score is a number or there is no monitor."""
        first = self.kept[0] if self.kept else None
        return first if first is not None and not (first.score is not None and math.isnan(first.score)) else None


@attrs.frozen(kw_only=True)
class Retention:
    """What to do with a new checkpoint.

    Args:
        save: Whether to save it.
        drop: Folders to delete once it is saved.
        after: The best ones then.
    """

    save: bool
    drop: tuple[str, ...]
    after: TopK


def consider(top: TopK, candidate: Kept) -> Retention:
    """Whether a candidate is among the best, and which one it displaces; without scores the newest counts as best.

    Of equal scores the earlier one stays better. A NaN is kept only while there is room.

    Args:
        top: The best so far.
        candidate: The checkpoint that might be saved.

    Example:
        >>> two = TopK(k=1, kept=(Kept(name="a", score=0.5, step=1),))
        >>> consider(two, Kept(name="b", score=0.4, step=2)).drop
        ('a',)
        >>> consider(two, Kept(name="b", score=0.6, step=2)).save
        False
    """
    others = list(top.kept)
    place = len(others)
    for index, kept in enumerate(others):
        if candidate.score is None or better(top.mode, candidate.score, kept.score):
            place = index
            break
    ranked = [*others[:place], candidate, *others[place:]]
    stay = ranked if top.k == -1 else ranked[: top.k]
    if candidate not in stay:
        return Retention(save=False, drop=(), after=top)
    gone = tuple(kept.name for kept in ranked if kept not in stay)
    return Retention(save=True, drop=gone, after=attrs.evolve(top, kept=tuple(stay)))


class Verdict(enum.Enum):
    """What a patient observer says of a score."""

    GO_ON = "go on"
    PATIENCE = "patience"
    NOT_FINITE = "not finite"
    REACHED = "reached"
    DIVERGED = "diverged"


@attrs.frozen(kw_only=True)
class Patience:
    """How long to wait for a better score.

    Args:
        mode: Whether small or large scores are good.
        patience: Observations without an improvement after which it is over, >= 0.
        min_delta: An improvement must be larger than this, >= 0.
        check_finite: Whether it is over at a NaN or an infinity.
        stopping_threshold: It is over once a score is this good.
        divergence_threshold: It is over once a score is this bad.
        best: The best score so far.
        waited: Observations since then.
    """

    mode: Mode = "min"
    patience: int = 3
    min_delta: float = 0.0
    check_finite: bool = True
    stopping_threshold: float | None = None
    divergence_threshold: float | None = None
    best: float | None = None
    waited: int = 0


def observe(patience: Patience, score: float) -> tuple[Patience, Verdict]:
    """The observer after one more score, and what it says.

    Args:
        patience: The observer.
        score: The monitored value.

    Example:
        >>> later, verdict = observe(Patience(patience=1, best=0.5), 0.6)
        >>> later.waited, verdict
        (1, <Verdict.PATIENCE: 'patience'>)
    """
    mode = patience.mode
    if patience.check_finite and not math.isfinite(score):
        return patience, Verdict.NOT_FINITE
    if patience.stopping_threshold is not None and better(mode, score, patience.stopping_threshold):
        return attrs.evolve(patience, best=score, waited=0), Verdict.REACHED
    if patience.divergence_threshold is not None and better(mode, patience.divergence_threshold, score):
        return attrs.evolve(patience, waited=patience.waited + 1), Verdict.DIVERGED
    margin = patience.min_delta if mode == "max" else -patience.min_delta
    if patience.best is None or better(mode, score, patience.best + margin):
        return attrs.evolve(patience, best=score, waited=0), Verdict.GO_ON
    waited = patience.waited + 1
    return attrs.evolve(patience, waited=waited), Verdict.PATIENCE if waited >= patience.patience else Verdict.GO_ON
