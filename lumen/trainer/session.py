"""Session: everything around a loop: what is checked, connected and opened before it, and closed after it."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import attrs

from lumen.callbacks.base import dispatch_table
from lumen.callbacks.model_checkpoint import ModelCheckpoint
from lumen.core.cadence import Every
from lumen.core.loading import LoaderPolicy
from lumen.core.planning import resume
from lumen.core.policy import Policy
from lumen.core.progress import TrainState
from lumen.errors import ConfigError
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.module import Module
from lumen.seeding import draw_seed
from lumen.shell.checkpoint_io import Checkpoint
from lumen.shell.optimizers import read_optimizers
from lumen.shell.paddle_shim import paddle
from lumen.shell.precision import Precision
from lumen.shell.ranks.cluster import Cluster
from lumen.shell.ranks.collectives import no_collectives
from lumen.shell.rng import Streams
from lumen.shell.runtime import PaddleRuntime
from lumen.shell.signals import StopSignals
from lumen.shell.sources.base import Source, least
from lumen.shell.transfer import data_place
from lumen.trainer.checks import check_method, check_module, check_wrapped, unwrap
from lumen.trainer.inputs import Inputs
from lumen.trainer.ranks import Part, attempt, connect_ranks
from lumen.trainer.replicas import check_same_model
from lumen.trainer.snapshot import find_checkpoint, restore_fit, restore_weights, saved_state

if TYPE_CHECKING:
    from lumen.trainer import Trainer


class Session:
    """One call of `fit`, `validate`, `test` or `predict`, as a context: it gives the `Run`.

    Args:
        trainer: The trainer.
        module: The user's module; None: the trainer's last one.
        inputs: The data, and which entry point it is for.
        ckpt_path: What the user gave.
    """

    def __init__(
        self, trainer: Trainer, module: Module | None, inputs: Inputs, ckpt_path: str | os.PathLike[str] | None
    ) -> None:
        self._trainer = trainer
        self._stage = inputs.stage
        self._wrapper, self._given = unwrap(module)
        self._inputs = inputs
        self._ckpt_path = ckpt_path
        self._sources: list[Source] = []
        self._run: Run | None = None
        self._part = Part(trainer, inputs.stage)
        self._set_up = False
        self._signals: StopSignals | None = None
        self._logged_beside: str | None = None

    def __enter__(self) -> Run:
        if self._trainer.running:
            raise ConfigError(
                f"trainer.{self._stage.value}", got="a call during another run", do="Wait until it ended."
            )
        self._trainer.running = True
        try:
            return self._open()
        except BaseException as error:
            self._part.fail(error)
            self._close("failed")
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._part.fail(error)
            self._close("failed")
            return
        try:
            if self._run is not None and self._stage is Stage.FIT:
                self._run.fire("on_fit_end")
        except BaseException as late:
            self._part.fail(late)
            self._close("failed")
            raise
        self._close("success")

    # -- opening ----------------------------------------------------------------------------------------------------

    def _open(self) -> Run:
        trainer, stage, inputs = self._trainer, self._stage, self._inputs
        wanted = LoaderPolicy(
            training=True, distribute=trainer.arguments.use_distributed_sampler, order=trainer.sampler
        )
        module = check_module(self._given if self._given is not None else trainer.module, stage, inputs.validation)
        inputs.check(len(trainer.device_plan.ids) * trainer.arguments.num_nodes, wanted)
        cluster = trainer.cluster = connect_ranks(trainer, wrapped=self._wrapper is not None)
        if stage is Stage.FIT:
            check_wrapped(cluster, module, self._wrapper, trainer.strategy)
        self._part.enter(cluster)
        trainer.module, module._trainer = module, trainer
        inputs.prepare(trainer, cluster)
        hooks = dispatch_table(trainer.callbacks, module, Module, (trainer, module))
        self._set_up = True
        for call in hooks["setup"]:
            call(stage.value)
        check_same_model(cluster.gather, module)
        checkpoint = find_checkpoint(trainer, self._part.resume_path() or self._ckpt_path)
        if stage is Stage.FIT:
            self._go_on_from(checkpoint, cluster)
        if cluster.kind == "gpu" and not cluster.outside:
            module.to(device=paddle.get_device())
        train, evaluation = inputs.open(cluster.world, attrs.evolve(wanted, seed=trainer.seed or 0))
        self._sources = [*([train] if train is not None else []), *evaluation]
        runtime = self._runtime(cluster, module, evaluation)
        if train is None:
            policy, state = Policy(), TrainState(progress=trainer.progress)
        else:
            saved = saved_state(checkpoint) if checkpoint is not None else TrainState()
            policy = self._prepare_fit(runtime, train)
            state = resume(policy, saved)
        run = self._run = self._part.run = trainer.run = Run(runtime, policy, hooks, stage, state)
        run.eval_loaders = len(runtime.eval_sources)
        run.write = self._write  # type: ignore[method-assign]
        module._log = run.logbook.log
        if stage is Stage.FIT:
            self._signals = StopSignals(trainer.stop_signals, run.ask)
            self._signals.__enter__()
        self._begin(run, cluster, module, checkpoint)
        return run

    def _go_on_from(self, checkpoint: Checkpoint | None, cluster: Cluster) -> None:
        """Takes over what a fit keeps from its checkpoint: its seed, and where it was logged."""
        trainer = self._trainer
        trainer.ckpt_path = str(checkpoint.path) if checkpoint is not None else None
        trainer.seed = self._seed(cluster, checkpoint)
        folder = checkpoint.manifest.get("log_dir") if checkpoint is not None else None
        self._logged_beside = os.path.join(folder, "checkpoints") if isinstance(folder, str) else None

    def _begin(self, run: Run, cluster: Cluster, module: Module, checkpoint: Checkpoint | None) -> None:
        """Sets back what the checkpoint holds, and starts."""
        if self._stage is Stage.FIT:
            self._open_logs(cluster, run.state)
            if checkpoint is not None:
                restore_fit(checkpoint, self._trainer, run, module)
            run.fire("on_fit_start")
            cluster.wait("on_fit_start")
        elif checkpoint is not None:
            restore_weights(checkpoint, run, module)

    def _seed(self, cluster: Cluster, checkpoint: Checkpoint | None) -> int:
        if checkpoint is not None:
            return int(checkpoint.sections["seed"])
        given = self._trainer.given_seed
        return int(cluster.broadcast("seed", draw_seed() if given is None else given))

    def _runtime(self, cluster: Cluster, module: Module, evaluation: list[Source]) -> PaddleRuntime:
        trainer = self._trainer
        precision = Precision(trainer.arguments.precision, on_gpu=cluster.kind == "gpu")
        streams = Streams(trainer.seed or 0, cluster.world.rank)
        place = data_place(trainer.data_device, cluster.place)
        runtime = PaddleRuntime(cluster, module, precision, streams, module.batch_size_of, trainer.strategy, place)
        word = "val" if self._stage is Stage.FIT else self._inputs.word
        used = []
        for source in evaluation:
            limit = trainer.arguments.limit(word, source.batches)
            if limit != 0:
                used.append((source, limit))
        if self._stage is Stage.FIT and used:
            check_method(module, "validation_step", self._stage)
        runtime.eval_sources = used
        runtime.sanity_limit = trainer.arguments.num_sanity_val_steps
        trainer.num_val_batches = [least(source.batches, limit) for source, limit in used]
        return runtime

    # -- fit --------------------------------------------------------------------------------------------------------

    def _prepare_fit(self, runtime: PaddleRuntime, source: Source) -> Policy:
        trainer = self._trainer
        limit = trainer.arguments.limit("train", source.batches)
        if limit == 0:
            raise ConfigError("limit_train_batches", got=0, do="Use max_epochs=0 for a fit that trains nothing.")
        batches = trainer.num_training_batches = least(source.batches, limit)
        setup = read_optimizers(runtime.module.configure_optimizers(), runtime.module)
        trainer.optimizers = [setup.optimizer]
        trainer.lr_schedulers = [setup.scheduler] if setup.scheduler is not None else []
        rules: list[Every] = []
        on_validation = False
        for callback in trainer.callbacks:
            if isinstance(callback, ModelCheckpoint):
                intervals, after_validation = callback.policy_rules(bool(runtime.eval_sources))
                rules += intervals
                on_validation = on_validation or after_validation
        policy = trainer.arguments.policy(
            runtime.world,
            batches=batches,
            has_validation=bool(runtime.eval_sources),
            checkpoint=tuple(dict.fromkeys(rules)),
            checkpoint_on_validation=on_validation,
            schedule=setup.schedule,
        )
        if policy.clip is not None and setup.optimizer._grad_clip is not None:
            raise ConfigError(
                "gradient_clip_val with grad_clip of the optimizer", got="both", allowed="one of them", do="Remove one."
            )
        runtime.prepare_training(setup, policy.clip, source, limit, self._wrapper)
        runtime.module.train()
        return policy

    def _open_logs(self, cluster: Cluster, state: TrainState) -> None:
        """Chooses the loggers' folders on rank 0, and tells them where a resumed run goes on."""
        trainer, module = self._trainer, self._trainer.module
        writing = trainer.loggers if trainer.is_global_zero else []
        for logger in writing:
            if trainer.ckpt_path is not None:
                logger.adopt(self._logged_beside or trainer.ckpt_path)
                logger.resume(state.progress.step)
        trainer.log_dir = cluster.broadcast("log_dir", writing[0].log_dir if writing else None)
        for logger in writing:
            if module is not None and module.hparams:
                logger.log_hyperparams(module.hparams)

    def _write(self, record: dict[str, float]) -> None:
        if self._run is not None and record:
            self._run.logbook.logged = record
            self._trainer.log_metrics(record)

    # -- closing ----------------------------------------------------------------------------------------------------

    def _close(self, status: str) -> None:
        """Closes everything, whatever of it fails; the first error is raised if the run itself had none."""
        trainer, module, data = self._trainer, self._trainer.module, self._inputs.datamodule
        trainer.running = False
        if self._signals is not None:
            self._signals.__exit__(None, None, None)
        todo: list[Callable[[], object]] = [source.close for source in self._sources]
        if self._set_up and module is not None:
            table = dispatch_table(trainer.callbacks, module, Module, (trainer, module))
            todo += [functools.partial(call, self._stage.value) for call in table["teardown"]]
            if data is not None:
                todo.append(functools.partial(data.teardown, self._stage.value))
        if module is not None:
            module._log = None
        todo += self._part.finalizers(status)
        with no_collectives() if status == "failed" else contextlib.nullcontext():
            errors = [error for error in map(attempt, todo) if error is not None]
        self._part.leave()
        if errors and status == "success":
            raise errors[0]
