"""One training batch: three pure calls around one fixed order of effects."""

from __future__ import annotations

from typing import Any

import attrs

from lumen.core.cadence import Unit
from lumen.core.planning import StepPlan, advance, plan_close, plan_step, stop_reason
from lumen.core.requests import NO_AGREED, NO_REQUEST, agree
from lumen.loop.evaluating import evaluate
from lumen.loop.logbook import Scope
from lumen.loop.run import Run
from lumen.loop.runtime import Stage


def run_step(run: Run, batch: Any, batch_idx: int, samples: int, last: bool) -> None:
    """Trains on one batch and does all that is due after it.

    Args:
        run: The run; its progress is advanced.
        batch: On the device.
        batch_idx: Its number in the epoch.
        samples: Samples of the batch over all ranks.
        last: Whether the epoch ends with it.
    """
    runtime, hooks = run.runtime, run.hooks
    quiet, window = run.quiet, run.window
    run.begun += 1
    if quiet:
        run.quiet = quiet - 1
        plan = run.quiet_plans[window + 1 == run.accumulate]
    else:
        plan = plan_step(run.policy, run.progress, last=last, samples=samples)  # pure: what to do
    run.plan = plan
    run.window = 0 if plan.optimizer_step else window + 1
    run.logbook.begin_batch(batch, window == 0)
    for call in hooks["on_train_batch_start"]:
        call(batch, batch_idx)
    outputs = runtime.forward_backward(batch, batch_idx, plan)
    stepped = plan.optimizer_step and runtime.optimizer_step(plan)
    if plan.scheduler_step and (stepped or _counts_epochs(run)):
        runtime.scheduler_step()
    if quiet:
        run.quiet_done += 1
        run.quiet_samples += samples
        if plan.optimizer_step and not stepped:
            run.quiet_skipped += 1
    else:
        run.progress = advance(run.progress, plan, stepped=stepped, samples=samples)  # pure: what happened
    for call in hooks["on_train_batch_end"]:
        call(outputs, batch, batch_idx)
    if plan.optimizer_step and (not quiet or run.held is not NO_REQUEST):
        _close_window(run, plan)


def _counts_epochs(run: Run) -> bool:
    return run.policy.schedule is not None and run.policy.schedule.unit is Unit.EPOCH


def _close_window(run: Run, plan: StepPlan) -> None:
    """Validation, logging, agreement, checkpoint, stop."""
    if plan.agree or run.runtime.world.size == 1:
        if plan.end_epoch or plan.log or plan.validate or plan.checkpoint:
            _share(run, plan)
        else:
            _agree(run)
    run.saving = run.asked.save
    close = plan_close(run.policy, run.progress, plan, run.asked)  # pure: what follows
    run.asked, run.stopped = close.asked, close.stop
    if close.checkpoint:
        run.fire("on_checkpoint")
    run.look_ahead()


def _share(run: Run, plan: StepPlan) -> None:
    """The moments at which the device is waited for anyway: values are read, and ranks exchange all they have."""
    runtime, logbook = run.runtime, run.logbook
    steps = logbook.merge_steps(runtime.gather("step values", logbook.step_table()))
    if plan.log:
        run.write(steps)
    if plan.validate and run.eval_loaders:
        evaluate(run, Stage.VALIDATE)
        runtime.gather("validation", None)  # its hooks may take longer on one rank than gloo waits in the next step
        logbook.scope = Scope.TRAIN_BATCH
    if plan.end_epoch:
        logbook.scope = Scope.TRAIN_EPOCH
        run.fire("on_train_epoch_end")
        record = logbook.close(evaluation=False)
        if record:
            run.write(record)
        run.fire("on_train_epoch_logged")
        logbook.begin_epoch()
    _agree(run)


def settle(run: Run) -> None:
    """Honours, before the first batch, what was asked for until then."""
    _agree(run)
    run.stopped = stop_reason(run.policy, run.progress, run.asked)


def _agree(run: Run) -> None:
    """Shares the requests of all ranks; alone, that costs nothing."""
    request = run.take()
    if run.runtime.world.size == 1 and request is NO_REQUEST and not run.counts_seconds:
        return
    gathered = run.runtime.gather("requests", (request, run.seconds))
    run.progress = attrs.evolve(run.progress, seconds=max(seconds for _, seconds in gathered))
    agreed = agree(request for request, _ in gathered)
    if agreed.stop:
        run.reason = agreed.reason
        run.signal = agreed.signal
    if agreed is not NO_AGREED:
        run.asked = agree([run.asked, agreed])
