"""Quiet batches: the stretches of a run in which nothing happens but training, found in one go.

A step of a small model takes 300 us, and Python between two of Paddle's calls runs on cold caches: planning each batch
by itself measured 11 us, 3.5 % of such a step. Almost all batches are alike, so the loop asks once how many are.
"""

from __future__ import annotations

import math

from lumen.core.cadence import Every, Unit
from lumen.core.planning import StepPlan, plan_step
from lumen.core.policy import Policy
from lumen.core.progress import Progress


def quiet_plans(policy: Policy) -> tuple[StepPlan, StepPlan]:
    """The plans of quiet batches: of one inside a window, and of one that closes its window.

    Example:
        >>> inside, closing = quiet_plans(Policy(accumulate=2))
        >>> inside.optimizer_step, closing.optimizer_step, closing.agree
        (False, True, False)
    """
    plain = Policy(accumulate=policy.accumulate, schedule=policy.schedule)
    filled = Progress(window=policy.accumulate - 1)
    return plan_step(plain, Progress(), last=False), plan_step(plain, filled, last=False)


def quiet_batches(policy: Policy, progress: Progress, *, left: int | None, alone: bool) -> int:
    """How many of the next batches only train: none ends an epoch or the run, logs, validates or saves.

    A lower bound: the batch after them may be quiet too.

    Args:
        policy: The run's policy, with `epoch_batches` set if an interval is a fraction of an epoch.
        progress: What is done so far.
        left: Batches left in the epoch; None: not known.
        alone: Whether there is one rank only, so that requests need no collective.

    Example:
        >>> quiet_batches(Policy(log=Every(50, Unit.STEP)), Progress(step=40), left=100, alone=True)
        9
        >>> quiet_batches(Policy(), Progress(), left=100, alone=True)
        99
    """
    if left is None:
        return 0
    quiet = left - 1
    if policy.max_steps is not None:
        quiet = min(quiet, _before_step(policy, progress, policy.max_steps))
    rules = [*policy.checkpoint, *(rule for rule in (policy.log,) if rule is not None)]
    if policy.agree is not None and not alone:
        rules.append(policy.agree)
    if policy.schedule is not None and policy.schedule != Every(1, Unit.STEP):
        rules.append(policy.schedule)
    for rule in rules:
        quiet = min(quiet, _before(rule, policy, progress))
    return max(0, min(quiet, _before_validation(policy, progress, quiet)))


def _before_step(policy: Policy, progress: Progress, step: int) -> int:
    """Batches before the one that closes the window of this step."""
    return (step - progress.step) * policy.accumulate - progress.window - 1


def _before(rule: Every, policy: Policy, progress: Progress) -> int:
    """Batches before the first one in which the rule may fire."""
    if rule.unit is Unit.STEP:
        return _before_step(policy, progress, (progress.step // int(rule.n) + 1) * int(rule.n))
    if rule.unit is Unit.BATCH:
        return _next(rule, progress.batches - progress.window) - progress.batches - 1
    if rule.unit is Unit.EPOCH:
        return _before_share(rule, policy, progress, progress.epoch)
    return 0  # samples and seconds are known only when they have passed


def _next(rule: Every, before: int) -> int:
    """The first count after `before` at which a rule in whole numbers fires."""
    return int((before // rule.n + 1) * rule.n)


def _before_share(rule: Every, policy: Policy, progress: Progress, epoch: int) -> int:
    """The same for a rule in epochs; whole epochs end with the last batch, which is never quiet."""
    length = policy.epoch_batches
    if type(rule.n) is int:
        return progress.batch + (length or 2**62)
    if length is None:
        return 0
    start = epoch * length + progress.batch - progress.window
    fires = (math.floor(start / (rule.n * length)) + 1) * rule.n * length
    return math.ceil(fires) - epoch * length - progress.batch - 1


def _before_validation(policy: Policy, progress: Progress, most: int) -> int:
    rule = policy.validate
    if rule is None:
        return most
    if rule.nth_epoch is None:
        return _before(rule.every, policy, progress)
    if (progress.epoch + 1) % rule.nth_epoch:
        return most
    if rule.every.unit is Unit.EPOCH:
        return _before_share(rule.every, policy, progress, 0)
    return _next(rule.every, progress.batch - progress.window) - progress.batch - 1


def advance_quiet(policy: Policy, progress: Progress, *, batches: int, skipped: int, samples: int) -> Progress:
    """The counters after some quiet batches; the same as `advance` batch by batch.

    Args:
        policy: The run's policy.
        progress: The counters before them.
        batches: How many, >= 0.
        skipped: Steps among them that the grad scaler refused.
        samples: Their samples, over all ranks.

    Example:
        >>> advance_quiet(Policy(accumulate=2), Progress(), batches=5, skipped=0, samples=50).step
        2
    """
    steps, window = divmod(progress.window + batches, policy.accumulate)
    share = samples * min(window, batches) // batches if batches else 0
    return Progress(
        epoch=progress.epoch,
        batch=progress.batch + batches,
        window=window,
        step=progress.step + steps,
        skipped=progress.skipped + skipped,
        batches=progress.batches + batches,
        consumed=progress.consumed + samples,
        samples=progress.samples + samples,
        window_samples=share if steps else progress.window_samples + samples,
        seconds=progress.seconds,
        seconds_before=progress.seconds if steps else progress.seconds_before,
    )
