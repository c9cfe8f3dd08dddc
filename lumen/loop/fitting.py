"""The training loop."""

from __future__ import annotations

import attrs

from lumen.errors import DataError
from lumen.loop.evaluating import evaluate
from lumen.loop.logbook import Scope
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.loop.stepping import run_step, settle


def fit(run: Run, *, sanity: bool = False) -> None:
    """Trains until the policy, or a request that all ranks agreed on, ends the run.

    Args:
        run: Where to go on from, and all that is needed.
        sanity: Run a few validation batches first.

    Raises:
        DataError: An epoch gave no batch.
    """
    if sanity and run.eval_loaders and run.stopped is None:
        run.stage = Stage.SANITY
        run.fire("on_sanity_check_start")
        evaluate(run, Stage.SANITY)
        run.fire("on_sanity_check_end")
    run.stage = Stage.FIT
    logbook = run.logbook
    logbook.scope = Scope.TRAIN_EPOCH
    if run.progress.batch == 0:
        logbook.begin_epoch()
    run.fire("on_train_start")
    if run.stopped is None:
        settle(run)
    while run.stopped is None:
        run.epoch = run.progress.epoch
        run.policy = attrs.evolve(run.policy, epoch_batches=run.runtime.train_length(run.progress))
        if run.progress.batch == 0:
            logbook.scope = Scope.TRAIN_EPOCH
            run.fire("on_train_epoch_start")
        logbook.scope = Scope.TRAIN_BATCH
        before = run.progress.batches
        batches = run.runtime.train_batches(run.progress)
        batch_idx = run.progress.batch
        run.look_ahead()
        for batch, samples, last in batches:
            run_step(run, batch, batch_idx, samples, last)
            batch_idx += 1
            if run.stopped is not None:
                break
        batches.close()
        if run.progress.batches == before:
            raise DataError(
                "train_dataloaders",
                got=f"no batch in epoch {run.progress.epoch}, from batch {run.progress.batch} on",
                allowed="at least one batch an epoch",
                do="Check the dataset's length, drop_last and limit_train_batches.",
            )
    logbook.scope = Scope.CLOSED
    run.fire("on_train_end")
    run.epoch = None
