"""Checkpoints of a run: what goes into one, and how it comes back."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from lumen.callbacks.model_checkpoint import ModelCheckpoint
from lumen.core.metrics import Reduce, Table, Total, merge_tables
from lumen.core.progress import TrainState
from lumen.core.records import from_record, to_record
from lumen.errors import CheckpointError
from lumen.loop.run import Run
from lumen.shell import checkpoint_io, optimizer_state
from lumen.shell.runtime import PaddleRuntime
from lumen.shell.weights import load_weights, weights
from lumen.trainer.parts import checkpoint_folders, keyed

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer.view import RunView


_log = logging.getLogger("lumen")


def write_checkpoint(trainer: RunView, run: Run, path: str | os.PathLike[str]) -> str:
    """Writes the run as it stands; every rank calls it, rank 0 writes.

    Args:
        trainer: Whose callbacks and module are saved.
        run: The run; its window must be closed.
        path: The checkpoint's folder; one that is there is replaced.

    Raises:
        CheckpointError: A window is open, or the checkpoint cannot be written.
    """
    runtime, module = run.runtime, trainer.module
    if not isinstance(runtime, PaddleRuntime) or module is None:
        raise CheckpointError("save_checkpoint", got="no run on paddle", do="Call it during fit.")
    if run.progress.window:
        raise CheckpointError(
            "save_checkpoint",
            got=f"{run.progress.window} batches of an open window, whose gradients are in no checkpoint",
            do="Use trainer.request_checkpoint(): it is honoured at the window's end.",
        )
    table = merge_tables(runtime.gather("checkpoint", run.logbook.epoch_table() if run.progress.batch else {}))
    streams = runtime.gather("random states", runtime.streams.capture())
    places = runtime.gather("places in the data", runtime.train_data.source.state())
    extra: dict[str, Any] = {}
    run.fire("on_save_checkpoint", extra)
    states = {key: dict(callback.state_dict()) for key, callback in keyed(trainer.callbacks)}
    target = os.fspath(path)
    if trainer.is_global_zero:
        sections = _sections(trainer, run, runtime, module)
        sections |= {
            "callbacks": states,
            "extra": extra,
            "rng": streams,
            "logbook": _table_record(table),
            "places": places,
        }
        checkpoint_io.write(target, sections, manifest=_manifest(run) | {"log_dir": trainer.log_dir})
        runtime.cluster.saved(target)
    runtime.cluster.wait(f"checkpoint:{target}")
    return target


def _sections(trainer: RunView, run: Run, runtime: PaddleRuntime, module: Module) -> dict[str, Any]:
    # an interval in seconds that ended since the window before has not fired yet: it does after the resume
    before = run.progress.seconds_before if run.counts_seconds else run.seconds
    state = attrs.evolve(run.state, progress=attrs.evolve(run.progress, seconds=run.seconds, seconds_before=before))
    sections: dict[str, Any] = {
        "model": weights(module),
        "state": to_record(state),
        "seed": trainer.seed,
        "hparams": _plain(module.hparams),
        "metrics": dict(run.logbook.callback),
        "evaluated": dict(run.logbook.evaluated),
        "data": runtime.train_data.source.facts(),
    }
    setup = runtime.setup
    if setup is not None:
        sections["optimizers"] = [optimizer_state.capture(setup.optimizer, module)]
        if setup.scheduler is not None:
            sections["schedulers"] = [optimizer_state.scheduler_state(setup.scheduler)]
    if runtime.precision.scaler is not None:
        sections["scaler"] = runtime.precision.state()
    return sections


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that JSON can hold; of others their repr, to be read by people."""
    return {k: v if isinstance(v, (bool, int, float, str, type(None))) else repr(v) for k, v in values.items()}


def _manifest(run: Run) -> dict[str, Any]:
    progress = run.progress
    return {
        "epoch": progress.epoch,
        "batch": progress.batch,
        "step": progress.step,
        "samples": progress.samples,
        "world": run.runtime.world.size,
        "policy": repr(run.policy),
    }


def _table_record(table: Table) -> dict[str, Any]:
    return {name: [of.reduce.value, of.value, of.weight] for name, of in table.items()}


def find_checkpoint(trainer: RunView, given: str | os.PathLike[str] | None) -> checkpoint_io.Checkpoint | None:
    """What `ckpt_path` asks for, read and verified; None for a fresh start.

    Args:
        trainer: Whose callbacks and loggers say where checkpoints lie.
        given: None, a path, "last", "best" or "auto".

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    if given is None:
        return None
    if given not in ("last", "auto"):
        return checkpoint_io.read(_best(trainer) if given == "best" else given)
    folders = checkpoint_folders(trainer.callbacks, trainer.loggers, trainer.default_root_dir)
    found = checkpoint_io.newest(folders)
    if found is None and given == "last":
        raise CheckpointError(
            'ckpt_path="last"',
            got=f"no whole checkpoint in {', '.join(folders) or 'any folder'}",
            do='Use ckpt_path="auto" to start afresh where there is none.',
        )
    if trainer.is_global_zero:
        which = f"going on from {found.path}" if found is not None else "nothing to go on from: a fresh start"
        sys.stderr.write(f"lumen: ckpt_path={given!r}: {which}\n")
    return found


def _best(trainer: RunView) -> str:
    callback = next((c for c in trainer.callbacks if isinstance(c, ModelCheckpoint)), None)
    if callback is None or not callback.best_model_path:
        raise CheckpointError(
            'ckpt_path="best"',
            got="no best checkpoint" if callback is not None else "no ModelCheckpoint among the callbacks",
            do="Fit first, with ModelCheckpoint(monitor=...), or give a path.",
        )
    return callback.best_model_path


def restore_weights(checkpoint: checkpoint_io.Checkpoint, run: Run, module: Module) -> None:
    """Sets the module's weights, and lets module and callbacks take back what they had added.

    Raises:
        CheckpointError: The weights are another model's.
    """
    load_weights(module, checkpoint.sections["model"], str(checkpoint.path))
    run.fire("on_load_checkpoint", checkpoint.sections.get("extra", {}))


def restore_fit(checkpoint: checkpoint_io.Checkpoint, trainer: RunView, run: Run, module: Module) -> None:
    """Sets back everything that a fit goes on from, but for the counters.

    Raises:
        CheckpointError: Something in the checkpoint does not fit this run.
    """
    runtime, sections = run.runtime, checkpoint.sections
    if not isinstance(runtime, PaddleRuntime) or runtime.setup is None:
        raise CheckpointError(str(checkpoint.path), got="no run on paddle", do="Call fit.")
    _check_sections(checkpoint, runtime)
    restore_weights(checkpoint, run, module)
    optimizer_state.restore(runtime.setup.optimizer, module, sections["optimizers"][0])
    if runtime.setup.scheduler is not None:
        optimizer_state.restore_scheduler(runtime.setup.scheduler, sections["schedulers"][0])
    runtime.precision.restore(sections.get("scaler", {}))
    for key, callback in keyed(trainer.callbacks):
        state = sections["callbacks"].get(key)
        if state:
            callback.load_state_dict(state)
    runtime.train_data.restore(sections.get("places", []), run.progress)
    world, streams = runtime.world, sections["rng"]
    if run.progress.batch and world.rank < len(streams):
        runtime.streams.restore(streams[world.rank])
    elif run.progress.batch:
        runtime.streams.begin_epoch(run.progress.epoch)
    run.logbook.callback = {name: float(value) for name, value in sections["metrics"].items()}
    run.logbook.evaluated = {name: float(value) for name, value in sections["evaluated"].items()}
    if world.rank == 0:
        run.logbook.carry({n: Total(Reduce(r), v, w) for n, (r, v, w) in sections["logbook"].items()})


def _check_sections(checkpoint: checkpoint_io.Checkpoint, runtime: PaddleRuntime) -> None:
    sections, name = checkpoint.sections, str(checkpoint.path)
    setup = runtime.setup
    if "optimizers" not in sections:
        raise CheckpointError(name, got="no optimizer state", do="It was saved outside of fit; load its weights only.")
    if setup is not None and (setup.scheduler is not None) != ("schedulers" in sections):
        raise CheckpointError(
            name,
            got="a scheduler" if "schedulers" in sections else "no scheduler",
            allowed="the same as configure_optimizers now returns",
            do="Return the optimizer and scheduler that the run was saved with.",
        )
    saved, now = sections.get("data", {}), runtime.train_data.source.facts()
    inside = bool(saved_state(checkpoint).progress.batch)
    other = saved.get("length") != now["length"]
    if other and not inside:
        _log.warning("The run was saved with %s; it goes on with %s.", _samples(saved), _samples(now))
    if other and inside:
        raise CheckpointError(
            name,
            got=f"an epoch begun with {_samples(saved)}; now there are {_samples(now)}",
            do="Go on with the data that the epoch was begun with, or from a checkpoint at an epoch's end.",
        )
    if inside and saved.get("order") != now["order"]:
        raise CheckpointError(
            name,
            got=f"an epoch begun in the order {saved.get('order')}; now it is {now['order']}",
            do="Go on with the same order, or from a checkpoint at an epoch's end.",
        )


def _samples(facts: Mapping[str, Any]) -> str:
    length = facts.get("length")
    return "data of unknown length" if length is None else f"{length} samples"


def saved_state(checkpoint: checkpoint_io.Checkpoint) -> TrainState:
    """The counters of a checkpoint."""
    state: TrainState = from_record(checkpoint.sections["state"], TrainState)
    return state
