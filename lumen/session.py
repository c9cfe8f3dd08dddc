"""Session: everything around a loop: what is checked, connected and opened before it, and closed after it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from lumen.callbacks.base import dispatch_table
from lumen.callbacks.model_checkpoint import ModelCheckpoint
from lumen.core.cadence import Every
from lumen.core.planning import resume
from lumen.core.policy import Policy
from lumen.core.progress import TrainState
from lumen.core.world import World, world_from_env
from lumen.errors import CheckpointError, ConfigError, DataError, ModuleError
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.module import Module
from lumen.parts import checkpoint_folders
from lumen.seeding import draw_seed
from lumen.shell import checkpoint_io, launcher
from lumen.shell.cluster import connect
from lumen.shell.loaders import Source, open_source
from lumen.shell.optimizers import read_optimizers
from lumen.shell.paddle_shim import paddle
from lumen.shell.precision import Precision
from lumen.shell.rng import Streams
from lumen.shell.runtime import PaddleRuntime
from lumen.snapshot import restore_fit, restore_weights, saved_state

if TYPE_CHECKING:
    from lumen.datamodule import DataModule
    from lumen.trainer import Trainer

_METHODS = {
    Stage.FIT: ("training_step", "configure_optimizers"),
    Stage.VALIDATE: ("validation_step",),
    Stage.TEST: ("test_step",),
    Stage.PREDICT: (),
}
_LIMITS = {Stage.FIT: "val", Stage.VALIDATE: "val", Stage.TEST: "test", Stage.PREDICT: "predict"}


@attrs.frozen
class Inputs:
    """The data of an entry point.

    Args:
        main: The training loader, or for an evaluation its loaders.
        validation: The validation loaders of a fit.
        datamodule: Gives the loaders in their place.
    """

    main: Any
    validation: Any
    datamodule: DataModule | None


class Session:
    """One call of `fit`, `validate`, `test` or `predict`, as a context: it gives the `Run`.

    Args:
        trainer: The trainer.
        stage: Which entry point.
        module: The user's module; None: the trainer's last one.
        inputs: The data.
        ckpt_path: What the user gave.
    """

    def __init__(
        self,
        trainer: Trainer,
        stage: Stage,
        module: Module | None,
        inputs: Inputs,
        ckpt_path: str | os.PathLike[str] | None,
    ) -> None:
        self._trainer = trainer
        self._stage = stage
        self._given = module
        self._inputs = inputs
        self._ckpt_path = ckpt_path
        self._sources: list[Source] = []
        self._run: Run | None = None
        self._hooked = False

    def __enter__(self) -> Run:
        try:
            return self._open()
        except BaseException as error:
            self._fail(error)
            self._close("failed")
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._fail(error)
        elif self._run is not None and self._stage is Stage.FIT:
            self._run.fire("on_fit_end")
        self._close("failed" if error is not None else "success")

    # -- opening ----------------------------------------------------------------------------------------------------

    def _open(self) -> Run:
        trainer, stage = self._trainer, self._stage
        module = self._check_module()
        self._check_data()
        cluster = trainer.cluster = self._connect(module)
        trainer.module, module._trainer = module, trainer
        data = self._inputs.datamodule
        if data is not None:
            data.trainer = trainer
            if cluster.world.local_rank == 0:
                data.prepare_data()
            cluster.wait("prepare_data")
            data.setup(stage.value)
        hooks = dispatch_table(trainer.callbacks, module, Module, (trainer, module))
        self._hooked = True
        for call in hooks["setup"]:
            call(stage.value)
        path = self._checkpoint_path()
        checkpoint = checkpoint_io.read(path) if path is not None else None
        trainer.ckpt_path = path if stage is Stage.FIT else trainer.ckpt_path
        if trainer.device_plan.kind == "gpu":
            module.to(device=paddle.get_device())
        if stage is Stage.FIT:
            trainer.seed = self._seed(checkpoint)
        runtime = PaddleRuntime(
            cluster,
            module,
            Precision(trainer.arguments.precision, on_gpu=trainer.device_plan.kind == "gpu"),
            Streams(trainer.seed or 0, cluster.world.rank),
            module.batch_size_of,
        )
        self._open_evaluation(runtime)
        state = saved_state(checkpoint) if checkpoint is not None and stage is Stage.FIT else TrainState()
        policy = self._prepare_fit(runtime) if stage is Stage.FIT else Policy()
        state = resume(policy, state)
        run = self._run = trainer.run = Run(runtime, policy, hooks, stage, state)
        run.eval_loaders = len(runtime.eval_sources)
        run.write = self._write  # type: ignore[method-assign]
        module._log = run.logbook.log
        if stage is Stage.FIT:
            self._open_logs(cluster, state)
            run.fire("on_fit_start")
        if checkpoint is not None:
            (restore_fit if stage is Stage.FIT else restore_weights)(checkpoint, trainer, run, module)
        return run

    def _check_module(self) -> Module:
        trainer, stage = self._trainer, self._stage
        if trainer.run is not None and self._busy():
            raise ConfigError(f"trainer.{stage.value}", got="a call during another run", do="Wait until it ended.")
        module = self._given if self._given is not None else trainer.module
        if module is None:
            raise ConfigError(f"trainer.{stage.value}(module)", got="no module", do="Pass a lumen.Module.")
        if not isinstance(module, Module):
            raise ModuleError(
                f"trainer.{stage.value}(module)",
                got=type(module).__name__,
                allowed="a lumen.Module",
                do="Subclass lumen.Module; pass an object, not a class.",
            )
        for method in _METHODS[stage]:
            self._check_method(module, method)
        return module

    def _busy(self) -> bool:
        return self._trainer._active

    def _check_method(self, module: Module, method: str) -> None:
        if getattr(type(module), method) is getattr(Module, method) and method not in vars(module):
            raise ModuleError(
                f"{type(module).__name__}.{method}",
                got="not written",
                do=f"trainer.{self._stage.value} needs it: write it in your Module.",
            )

    def _check_data(self) -> None:
        """Refuses what cannot be run on, before any rank is started."""
        inputs, stage = self._inputs, self._stage
        name = "train_dataloaders" if stage is Stage.FIT else "dataloaders"
        if inputs.datamodule is not None and (inputs.main is not None or inputs.validation is not None):
            raise ConfigError(
                f"{name} with datamodule", got="both", allowed="one of them", do="The datamodule gives the loaders."
            )
        if inputs.datamodule is None and inputs.main is None:
            raise DataError(name, got="None", do=f"Pass a loader to trainer.{stage.value}, or a datamodule.")
        if inputs.datamodule is None:
            size = len(self._trainer.device_plan.ids) * self._trainer.arguments.num_nodes
            world = World(size=size, rank=0, local_size=size, local_rank=0, node=0)
            self._open_loaders(world)
            self._close_sources()

    def _connect(self, module: Module) -> Any:
        trainer = self._trainer
        if trainer.cluster is not None:
            return trainer.cluster
        world = world_from_env(os.environ)
        if world.size == 1 and len(trainer.device_plan.ids) > 1:
            launcher.launch(trainer.device_plan)
        return connect(trainer.device_plan, world)

    def _checkpoint_path(self) -> str | None:
        trainer, given = self._trainer, self._ckpt_path
        if given is None:
            return None
        if given == "best":
            return self._best()
        if given not in ("last", "auto"):
            return os.fspath(given)
        folders = checkpoint_folders(trainer.callbacks, trainer.loggers, trainer.default_root_dir)
        found = checkpoint_io.find(folders)
        if found:
            return str(found[0])
        if given == "auto":
            return None
        raise CheckpointError(
            'ckpt_path="last"',
            got=f"no whole checkpoint in {', '.join(folders) or 'any folder'}",
            do='Use ckpt_path="auto" to start afresh where there is none.',
        )

    def _best(self) -> str:
        callback = next((c for c in self._trainer.callbacks if isinstance(c, ModelCheckpoint)), None)
        if callback is None or not callback.best_model_path:
            raise CheckpointError(
                'ckpt_path="best"',
                got="no best checkpoint" if callback is not None else "no ModelCheckpoint among the callbacks",
                do="Fit first, with ModelCheckpoint(monitor=...), or give a path.",
            )
        return str(callback.best_model_path)

    def _seed(self, checkpoint: checkpoint_io.Checkpoint | None) -> int:
        if checkpoint is not None:
            return int(checkpoint.sections["seed"])
        cluster, seed = self._trainer.cluster, self._trainer.seed
        if seed is None:
            seed = draw_seed()
        return int(cluster.broadcast(seed)) if cluster is not None else seed

    # -- loaders ----------------------------------------------------------------------------------------------------

    def _open_loaders(self, world: World) -> tuple[Source | None, list[Source]]:
        """The training source and the evaluation sources, as the stage needs them."""
        stage, inputs = self._stage, self._inputs
        main, validation, data = inputs.main, inputs.validation, inputs.datamodule
        if data is not None:
            main, validation = self._from_datamodule(data)
        if stage is not Stage.FIT:
            return None, self._open_list(main, f"{stage.value} dataloaders", world)
        if main is None:
            raise DataError("train_dataloaders", got="None", do="train_dataloader() of the datamodule must return one.")
        train = self._source(main, "train_dataloaders", world, training=True)
        evaluation = self._open_list(validation, "val_dataloaders", world) if validation is not None else []
        return train, evaluation

    def _from_datamodule(self, data: DataModule) -> tuple[Any, Any]:
        if self._stage is Stage.FIT:
            return data.train_dataloader(), data.val_dataloader()
        word = {Stage.VALIDATE: "val", Stage.TEST: "test", Stage.PREDICT: "predict"}[self._stage]
        loader = getattr(data, f"{word}_dataloader")()
        if loader is None:
            raise DataError("datamodule", got=f"None from {word}_dataloader()", do=f"Write {word}_dataloader().")
        return loader, None

    def _open_list(self, loaders: Any, name: str, world: World) -> list[Source]:
        """One source, or one for each loader of a list of loaders (a list of batches is one loader)."""
        if isinstance(loaders, (list, tuple)) and loaders and all(is_loader(loader) for loader in loaders):
            return [self._source(one, f"{name}[{i}]", world, training=False) for i, one in enumerate(loaders)]
        return [self._source(loaders, name, world, training=False)]

    def _source(self, loader: Any, name: str, world: World, *, training: bool) -> Source:
        source = open_source(
            loader,
            world,
            training=training,
            seed=self._trainer.seed or 0,
            name=name,
            distribute=self._trainer.arguments.use_distributed_sampler,
        )
        self._sources.append(source)
        return source

    def _open_evaluation(self, runtime: PaddleRuntime) -> None:
        trainer, stage = self._trainer, self._stage
        self._train, evaluation = self._open_loaders(runtime.world)
        limits = [trainer.arguments.limit(_LIMITS[stage], source.batches) for source in evaluation]
        used = [(source, limit) for source, limit in zip(evaluation, limits, strict=True) if limit != 0]
        if stage is Stage.FIT and used:
            self._check_method(runtime.module, "validation_step")
        runtime.sanity_limit = trainer.arguments.num_sanity_val_steps
        runtime.eval_sources = used
        trainer.num_val_batches = [
            source.batches if limit is None else limit if source.batches is None else min(limit, source.batches)
            for source, limit in used
        ]

    # -- fit --------------------------------------------------------------------------------------------------------

    def _prepare_fit(self, runtime: PaddleRuntime) -> Policy:
        trainer, source = self._trainer, self._train
        if source is None:
            raise DataError("train_dataloaders", got="None")
        limit = trainer.arguments.limit("train", source.batches)
        if limit == 0:
            raise ConfigError("limit_train_batches", got=0, do="Use max_epochs=0 for a fit that trains nothing.")
        batches = source.batches if limit is None else limit if source.batches is None else min(limit, source.batches)
        trainer.num_training_batches = batches
        setup = read_optimizers(runtime.module.configure_optimizers())
        trainer.optimizers = [setup.optimizer]
        trainer.lr_schedulers = [setup.scheduler] if setup.scheduler is not None else []
        has_validation = bool(runtime.eval_sources)
        rules: list[Every] = []
        on_validation = False
        for callback in trainer.callbacks:
            if isinstance(callback, ModelCheckpoint):
                intervals, after_validation = callback.policy_rules(has_validation)
                rules += intervals
                on_validation = on_validation or after_validation
        policy = trainer.arguments.policy(
            runtime.world,
            batches=batches,
            has_validation=has_validation,
            checkpoint=tuple(dict.fromkeys(rules)),
            checkpoint_on_validation=on_validation,
            schedule=setup.schedule,
        )
        if policy.clip is not None and setup.optimizer._grad_clip is not None:
            raise ConfigError(
                "gradient_clip_val with grad_clip of the optimizer", got="both", allowed="one of them", do="Remove one."
            )
        runtime.prepare_training(setup, policy.clip, source, limit)
        runtime.module.train()
        return policy

    def _open_logs(self, cluster: Any, state: TrainState) -> None:
        """Chooses the loggers' folders on rank 0, and tells them where a resumed run goes on."""
        trainer = self._trainer
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                if trainer.ckpt_path is not None:
                    logger.adopt(trainer.ckpt_path)
                    logger.resume(state.progress.step)
        mine = trainer.loggers[0].log_dir if trainer.is_global_zero and trainer.loggers else None
        trainer.log_dir = cluster.broadcast(mine)
        module = trainer.module
        if trainer.is_global_zero and module is not None and module.hparams:
            for logger in trainer.loggers:
                logger.log_hyperparams(module.hparams)

    def _write(self, record: dict[str, float]) -> None:
        run, trainer = self._run, self._trainer
        if run is not None and record:
            run.logbook.logged = record
            trainer.log_metrics(record)

    # -- closing ----------------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        run, trainer = self._run, self._trainer
        if run is not None:
            run.annotate(error)
            run.fire("on_exception", error)
        if not isinstance(error, SystemExit):
            launcher.report_failure(error)

    def _close(self, status: str) -> None:
        trainer, module = self._trainer, self._trainer.module
        self._close_sources()
        if self._hooked and module is not None:
            hooks = dispatch_table(trainer.callbacks, module, Module, (trainer, module))
            for call in hooks["teardown"]:
                call(self._stage.value)
        if self._inputs.datamodule is not None:
            self._inputs.datamodule.teardown(self._stage.value)
        if module is not None:
            module._log = None
        if self._run is not None and trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.finalize(status)

    def _close_sources(self) -> None:
        for source in self._sources:
            source.close()
        self._sources.clear()


def is_loader(value: Any) -> bool:
    """Whether an element of a list is a loader, rather than a batch of a list of ready batches."""
    return isinstance(value, paddle.io.DataLoader)
