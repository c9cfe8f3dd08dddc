"""The evaluation loop: validation, test and prediction."""

from __future__ import annotations

from typing import Any

from lumen.loop.logbook import Scope
from lumen.loop.run import Run
from lumen.loop.runtime import Stage


def evaluate(run: Run, stage: Stage, *, collect: bool = False) -> list[list[Any]]:
    """Evaluates every batch of every loader of a stage; the metrics over all ranks are in the logbook afterwards.

    It costs one host read and one collective, at its end.

    Args:
        run: The run.
        stage: What to evaluate. A sanity check writes and keeps no value.
        collect: Keep what the user's step returned.

    Returns:
        For each loader the outputs of this rank's batches; empty lists unless `collect`.
    """
    runtime, hooks, logbook = run.runtime, run.hooks, run.logbook
    word, before = stage.hook, run.stage
    run.stage = stage
    outputs: list[list[Any]] = [[] for _ in range(run.eval_loaders)]
    several = run.eval_loaders > 1
    runtime.eval_begin(stage)
    try:
        logbook.begin_eval()
        run.fire(f"on_{word}_start")
        run.fire(f"on_{word}_epoch_start")
        for loader in range(run.eval_loaders):
            index = (loader,) if several else ()
            suffix = f"/dataloader_idx_{loader}" if several else ""
            for batch_idx, (batch, _, _) in enumerate(runtime.eval_batches(stage, loader)):
                run.eval_batch = batch_idx
                logbook.begin_batch(batch, suffix=suffix)
                for call in hooks[f"on_{word}_batch_start"]:
                    call(batch, batch_idx, *index)
                output = runtime.eval_step(stage, batch, batch_idx, loader)
                for call in hooks[f"on_{word}_batch_end"]:
                    call(output, batch, batch_idx, *index)
                if collect:
                    outputs[loader].append(output)
        run.fire(f"on_{word}_epoch_end")
        kept = dict(logbook.callback)
        record = logbook.close(evaluation=True)
        if stage is Stage.SANITY:
            logbook.callback = kept
        elif record:
            run.write(record)
        logbook.scope = Scope.CLOSED
        run.fire(f"on_{word}_end")
    finally:
        logbook.scope = Scope.CLOSED
        runtime.eval_end(stage)
        run.stage = before
    return outputs
