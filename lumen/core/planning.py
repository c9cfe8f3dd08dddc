"""Step plans: what the next batch will do, and what follows it, as pure functions of policy and progress."""

from __future__ import annotations

import functools
from fractions import Fraction

import attrs

from lumen.core.cadence import Every, Unit
from lumen.core.policy import Policy, StopReason, Validation
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import NO_AGREED, Agreed, Request, agree


@attrs.frozen
class StepPlan:
    """What the next batch will do; decided before it, the same on every rank: it has no rank in it.

    Args:
        sync_grads: Sum the gradients over the ranks in this batch's backward.
        loss_weight: Multiplies the loss before backward.
        grad_rescale: Multiplies the gradients before the optimizer step; not 1.0 only in a short window.
        optimizer_step: This batch closes its window.
        scheduler_step: Move the scheduler, if the step was applied (or the schedule counts epochs).
        end_epoch: This is the last batch of its epoch.
        log: Read the logged values and write them.
        validate: Run the validation loop after the step.
        checkpoint: Ask the checkpoint callbacks after the step (and after the validation).
        agree: Share requests over the ranks.
    """

    sync_grads: bool
    loss_weight: float
    grad_rescale: float
    optimizer_step: bool
    scheduler_step: bool
    end_epoch: bool
    log: bool
    validate: bool
    checkpoint: bool
    agree: bool


@attrs.frozen
class ClosePlan:
    """What follows the step; decided once the validation and the agreed requests are known.

    Args:
        checkpoint: Ask the checkpoint callbacks now.
        stop: Why the run ends here; None: it goes on.
        asked: Agreed requests that still wait.
    """

    checkpoint: bool
    stop: StopReason | None
    asked: Agreed = NO_AGREED


_plan = functools.lru_cache(maxsize=256)(StepPlan)  # few distinct plans, and building one costs 0.7 us
_GO_ON = ClosePlan(False, None)


def _micro(accumulate: int) -> StepPlan:
    """The plan of a batch that closes no window."""
    return _plan(False, 1.0 / accumulate, 1.0, False, False, False, False, False, False, False)


def plan_step(policy: Policy, progress: Progress, *, last: bool, samples: int = 0) -> StepPlan:
    """Decides all that can be known of the next batch.

    The loss of each batch of a window weighs 1/N; a window cut short by the epoch's end after k batches is rescaled
    by N/k before the step, so that the weights of any window sum to 1. Every interval is tested where a window
    closes, over the whole window: an interval in batches that ends inside a window fires at the window's end.

    Args:
        policy: The run's policy, with `epoch_batches` set if an interval is a fraction of an epoch.
        progress: What is done so far.
        last: Whether this batch is the last of its epoch.
        samples: Samples in this batch, over all ranks.

    Example:
        >>> plan = plan_step(Policy(accumulate=3), Progress(batch=6, batches=6, step=2), last=True)
        >>> plan.loss_weight * plan.grad_rescale, plan.optimizer_step
        (1.0, True)
    """
    accumulate = policy.accumulate
    window = progress.window + 1
    if window < accumulate and not last:
        return _micro(accumulate)
    log = policy.log is not None and _due(policy.log, policy, progress, last, samples)
    validate = policy.validate is not None and _validation_due(policy.validate, policy, progress, last, samples)
    checkpoint = policy.checkpoint_on_validation and validate
    for rule in policy.checkpoint:
        checkpoint = checkpoint or _due(rule, policy, progress, last, samples)
    # the device is waited for at these moments anyway, so one small collective is cheap there
    agreeing = last or log or validate or checkpoint
    if not agreeing and policy.agree is not None:
        agreeing = _due(policy.agree, policy, progress, last, samples)
    return _plan(
        True,
        1.0 / accumulate,
        accumulate / window,
        True,
        policy.schedule is not None and _due(policy.schedule, policy, progress, last, samples),
        last,
        log,
        validate,
        checkpoint,
        agreeing,
    )


def _due(rule: Every, policy: Policy, progress: Progress, last: bool, samples: int) -> bool:
    """Whether the rule fires in the window that closes with the next batch."""
    unit = rule.unit
    if unit is Unit.STEP:
        return rule.fires(progress.step, progress.step + 1)
    if unit is Unit.EPOCH:
        if type(rule.n) is int:
            return last and rule.fires(progress.epoch, progress.epoch + 1)
        return rule.fires(*_epoch_position(policy, progress, last, progress.epoch))
    if unit is Unit.BATCH:
        return rule.fires(progress.batches - progress.window, progress.batches + 1)
    if unit is Unit.SAMPLE:
        return rule.fires(progress.samples - progress.window_samples, progress.samples + samples)
    return rule.fires(progress.seconds_before, progress.seconds)


def _epoch_position(policy: Policy, progress: Progress, last: bool, epoch: int) -> tuple[Fraction, Fraction]:
    """The epochs done at the start of the window and after the next batch, as fractions."""
    length = policy.epoch_batches
    if length is None:
        raise ValueError("a fraction of an epoch needs policy.epoch_batches")
    before = epoch + Fraction(progress.batch - progress.window, length)
    return before, Fraction(epoch + 1) if last else epoch + Fraction(progress.batch + 1, length)


def _validation_due(rule: Validation, policy: Policy, progress: Progress, last: bool, samples: int) -> bool:
    if rule.nth_epoch is None:
        return _due(rule.every, policy, progress, last, samples)
    if (progress.epoch + 1) % rule.nth_epoch:
        return False
    if rule.every.unit is Unit.EPOCH:
        return rule.every.fires(*_epoch_position(policy, progress, last, 0))
    return rule.every.fires(progress.batch - progress.window, progress.batch + 1)


def advance(progress: Progress, plan: StepPlan, *, stepped: bool, samples: int = 0) -> Progress:
    """The counters after a batch.

    Args:
        progress: The counters before it.
        plan: The plan that was carried out.
        stepped: Whether the optimizer changed the weights; False where the grad scaler refused the step.
        samples: Samples in the batch, over all ranks.

    Example:
        >>> plan = plan_step(Policy(), Progress(), last=False)
        >>> advance(Progress(), plan, stepped=True, samples=32).samples
        32
    """
    closes, ends = plan.optimizer_step, plan.end_epoch
    return Progress(
        progress.epoch + ends,
        0 if ends else progress.batch + 1,
        0 if closes else progress.window + 1,
        progress.step + closes,
        progress.skipped + (closes and not stepped),
        progress.batches + 1,
        0 if ends else progress.consumed + samples,
        progress.samples + samples,
        0 if closes else progress.window_samples + samples,
        progress.seconds,
        progress.seconds if closes else progress.seconds_before,
    )


def stop_reason(policy: Policy, progress: Progress, asked: Agreed = NO_AGREED) -> StopReason | None:
    """Why the run is over at this point; None if it is not.

    A request to stop waits until `min_epochs` and `min_steps` are reached; a limit does not, nor does a signal.
    """
    if policy.max_steps is not None and progress.step >= policy.max_steps:
        return StopReason.MAX_STEPS
    if policy.max_epochs is not None and progress.epoch >= policy.max_epochs:
        return StopReason.MAX_EPOCHS
    enough = progress.epoch >= policy.min_epochs and progress.step >= policy.min_steps
    if asked.stop and (enough or asked.signal):
        return StopReason.REQUEST
    return None


def plan_close(policy: Policy, progress: Progress, plan: StepPlan, agreed: Agreed) -> ClosePlan:
    """Decides what follows a step.

    Inside a window nothing is saved and nothing stops: its gradients are in no checkpoint.

    Args:
        policy: The run's policy.
        progress: The counters after the step.
        plan: The plan that was carried out.
        agreed: What the ranks agreed on now, and what still waits from before.
    """
    if not plan.optimizer_step:
        return _GO_ON if agreed is NO_AGREED else ClosePlan(False, None, agreed)
    stop = stop_reason(policy, progress, agreed)
    if stop is None and agreed is NO_AGREED and not plan.checkpoint:
        return _GO_ON
    waiting: Request = NO_AGREED
    if agreed.stop and stop is None:
        waiting = Request(stop=True, reason=agreed.reason, seconds=agreed.seconds)
    return ClosePlan(plan.checkpoint or agreed.save or stop is not None, stop, Agreed(waiting))


def resume(policy: Policy, saved: TrainState) -> TrainState:
    """The state to go on from: a raised limit reopens a run that had ended, an old request to stop is forgotten.

    Example:
        >>> done = TrainState(progress=Progress(epoch=3), stopped=StopReason.MAX_EPOCHS)
        >>> resume(Policy(max_epochs=5), done).stopped is None
        True
    """
    return TrainState(progress=saved.progress, stopped=stop_reason(policy, saved.progress), asked=agree(()))
