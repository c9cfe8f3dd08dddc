"""Trainer: the facade that turns arguments into a policy and runs the loops."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lumen.callbacks.base import Callback
from lumen.core.arguments import Arguments
from lumen.core.devices import check_data_device, plan_devices
from lumen.core.orders.base import Order, check_order
from lumen.core.strategy import FleetStrategy, make_strategy
from lumen.core.supervising import Supervision
from lumen.errors import ConfigError, did_you_mean
from lumen.loggers.base import Logger
from lumen.loop.evaluating import evaluate
from lumen.loop.fitting import fit
from lumen.loop.runtime import Stage
from lumen.shell.paddle_shim import gpu_count
from lumen.shell.signals import STOP_SIGNALS, signal_numbers
from lumen.trainer.elsewhere import run_elsewhere, runs_elsewhere
from lumen.trainer.inputs import Inputs
from lumen.trainer.parts import make_callbacks, make_loggers
from lumen.trainer.session import Session
from lumen.trainer.view import RunView

if TYPE_CHECKING:
    from lumen.datamodule import DataModule
    from lumen.module import Module


class Trainer(RunView):
    """Trains, validates, tests and predicts with a `lumen.Module`.

    Names and defaults are Lightning's; every argument is given by name.

    Args:
        accelerator: "auto", "cpu" or "gpu".
        devices: How many processes on this node: "auto" (one on a CPU, all GPUs), an int, -1 (all GPUs), a list of
            GPU numbers in the order of the ranks, or either as a text ("2", "0,2").
        num_nodes: Nodes of the job, >= 1.
        data_device: Where batches go: "cpu", "gpu" (this rank's), "gpu:1", or None: where the module is.
        precision: "32-true", "bf16-mixed" or "16-mixed". Paddle casts nothing on a CPU: there a run is 32-true.
        max_epochs: Stop after so many epochs; -1: no limit. Default: 1000 unless `max_steps` is given.
        min_epochs: Requests to stop wait until so many epochs are done.
        max_steps: Stop after so many optimizer steps; -1: no limit.
        accumulate_grad_batches: Batches per optimizer step. A short last window counts in full.
        gradient_clip_val: Largest norm or element of the gradients; 0 or None: no clipping.
        gradient_clip_algorithm: "norm" (of all gradients together) or "value" (each element).
        val_check_interval: Share of an epoch (float), batches (int), or a text such as "500 steps". Validation runs
            where a window closes.
        check_val_every_n_epoch: Validate in each n-th epoch only; None: count the interval across epochs.
        log_every_n_steps: How often logged values are read and written, in steps; 0: never.
        limit_train_batches: Batches (int) or share of the batches (float) of an epoch on each rank.
        limit_val_batches: The same for each validation loader; 0: no validation.
        limit_test_batches: The same for each test loader.
        limit_predict_batches: The same for each loader to predict.
        num_sanity_val_steps: Validation batches before a fresh fit; -1: all, 0: none.
        enable_progress_bar: Show a `ProgressBar` if none is among the callbacks.
        enable_checkpointing: Add a `ModelCheckpoint` if none is among the callbacks.
        logger: True for a `CSVLogger`, False for none, or one or several loggers.
        callbacks: One or several; checkpoint callbacks are called last.
        default_root_dir: Where logs and checkpoints go; default: the working folder.
        deterministic: True: ask Paddle for deterministic GPU kernels.
        use_distributed_sampler: Deal the samples of map-style loaders to the ranks.
        seed: Seed of the order of samples and of all random numbers in training. Default: drawn from numpy's global
            generator when a fit starts, so that `lumen.seed_everything` decides it.
        sampler: The order of the training samples, such as `lumen.data.Bucketed("length")`, for a DataLoader that has
            none of its own. Default: as its `shuffle` says.
        strategy: How several ranks work together: "auto", or a `lumen.FleetStrategy`.
        stop_signals: Signals on which a fit saves, stops at a step that all ranks agree on, and ends the program with
            the exit code 128 + the signal's number; on a second one it ends at once. Empty: none.
        hang_timeout: Seconds, or a text such as "30 min", that a run may stand still, within a batch or a hook, before
            it is ended with a report of where each rank stands; None: for ever.
        max_restarts: How often all ranks that this program started are started again after a failure, to go on from
            the last checkpoint; not after the same error at the same step twice.
        rank_output: What is shown of ranks other than 0: "all", "errors" (their standard error), "none", or a folder
            for one file `rank-N.log` a rank, rank 0 included.
        check_replicas: How often the weights of all ranks are compared, such as "1 epoch" or "500 steps"; where they
            differ, the run ends with an error that names the first such parameter. None: never.

    Raises:
        ConfigError: An argument is unknown, wrong, or contradicts another.

    Example:
        >>> Trainer(max_epoch=3)
        Traceback (most recent call last):
        lumen.errors.ConfigError: Trainer(max_epoch=...): got 3. Did you mean 'max_epochs'?
    """

    def __init__(
        self,
        *,
        accelerator: str = "auto",
        devices: int | str | Sequence[int] = "auto",
        num_nodes: int = 1,
        data_device: str | None = None,
        precision: str = "32-true",
        max_epochs: int | None = None,
        min_epochs: int | None = None,
        max_steps: int = -1,
        accumulate_grad_batches: int = 1,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str = "norm",
        val_check_interval: int | float | str | None = None,
        check_val_every_n_epoch: int | None = 1,
        log_every_n_steps: int | str = 50,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        num_sanity_val_steps: int = 2,
        enable_progress_bar: bool = True,
        enable_checkpointing: bool = True,
        logger: bool | Logger | Sequence[Logger] = True,
        callbacks: Callback | Sequence[Callback] | None = None,
        default_root_dir: str | os.PathLike[str] | None = None,
        deterministic: bool | None = None,
        use_distributed_sampler: bool = True,
        seed: int | None = None,
        sampler: Order | None = None,
        strategy: str | FleetStrategy = "auto",
        stop_signals: Sequence[str] = STOP_SIGNALS,
        hang_timeout: float | str | None = "30 min",
        max_restarts: int = 0,
        rank_output: str | os.PathLike[str] = "all",
        check_replicas: str | None = None,
        **unknown: NoReturn,
    ) -> None:
        super().__init__()
        if unknown:
            _refuse(dict(unknown))
        self.arguments = Arguments(
            num_nodes=num_nodes,
            precision=precision,
            max_epochs=max_epochs,
            min_epochs=min_epochs,
            max_steps=max_steps,
            accumulate_grad_batches=accumulate_grad_batches,
            gradient_clip_val=gradient_clip_val,
            gradient_clip_algorithm=gradient_clip_algorithm,
            val_check_interval=val_check_interval,
            check_val_every_n_epoch=check_val_every_n_epoch,
            log_every_n_steps=log_every_n_steps,
            limit_train_batches=limit_train_batches,
            limit_val_batches=limit_val_batches,
            limit_test_batches=limit_test_batches,
            limit_predict_batches=limit_predict_batches,
            num_sanity_val_steps=num_sanity_val_steps,
            enable_progress_bar=enable_progress_bar,
            enable_checkpointing=enable_checkpointing,
            deterministic=deterministic,
            use_distributed_sampler=use_distributed_sampler,
        )
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63):
            raise ConfigError("seed", got=seed, allowed="an int from 0 to 2**63 - 1, or None")
        if sampler is not None:
            check_order(sampler, "sampler")
        self.sampler = sampler
        self.strategy = make_strategy(strategy)
        self.supervision = Supervision(hang_timeout=hang_timeout, max_restarts=max_restarts, rank_output=rank_output)
        self.stop_signals = signal_numbers(stop_signals)
        self.given_seed = seed
        self.seed = seed
        self.device_plan = plan_devices(accelerator, devices, gpus=gpu_count())
        self.data_device = check_data_device(data_device, gpus=gpu_count())
        self.default_root_dir = os.path.abspath(os.fspath(default_root_dir) if default_root_dir is not None else ".")
        self.loggers: list[Logger] = make_loggers(logger, self.default_root_dir)
        self.callbacks: list[Callback] = make_callbacks(callbacks, self.arguments, check_replicas)

    # -- entry points -----------------------------------------------------------------------------------------------

    def fit(
        self,
        module: Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: DataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Trains the module.

        Args:
            module: The module; its weights are changed in place. Where you called `fleet.init` yourself, on several
                ranks, a `paddle.DataParallel` around it; lumen wraps nothing then.
            train_dataloaders: A `paddle.io.DataLoader`, or a list of ready batches.
            val_dataloaders: One, or a list of them.
            datamodule: Gives the loaders in their place.
            ckpt_path: Go on from a checkpoint: a path, "last" (the newest whole one below `default_root_dir`), "best"
                (of the checkpoint callback), or "auto" ("last" if there is one, else a fresh start).

        Raises:
            LumenError: Something is missing or wrong; nothing was trained.
            SystemExit: A signal asked the run to stop: it was saved, and is closed.
        """
        if runs_elsewhere(self):
            run_elsewhere(self, "fit", module, train_dataloaders, val_dataloaders, datamodule, ckpt_path)
            return
        inputs = Inputs(Stage.FIT, train_dataloaders, val_dataloaders, datamodule)
        with Session(self, module, inputs, ckpt_path) as run:
            fit(run, sanity=self.arguments.num_sanity_val_steps != 0 and self.ckpt_path is None)
        number = run.signal or run.held.signal
        if number:
            raise SystemExit(128 + number)

    def validate(
        self,
        module: Module | None = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> list[dict[str, float]]:
        """Evaluates the module on the validation data; returns the metrics, one dict a loader."""
        if runs_elsewhere(self):
            found: list[dict[str, float]] = run_elsewhere(self, "validate", module, dataloaders, datamodule, ckpt_path)
            return found
        with Session(self, module, Inputs(Stage.VALIDATE, dataloaders, None, datamodule), ckpt_path) as run:
            evaluate(run, Stage.VALIDATE)
            return run.results()

    def test(
        self,
        module: Module | None = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> list[dict[str, float]]:
        """Evaluates the module on the test data; returns the metrics, one dict a loader."""
        if runs_elsewhere(self):
            found: list[dict[str, float]] = run_elsewhere(self, "test", module, dataloaders, datamodule, ckpt_path)
            return found
        with Session(self, module, Inputs(Stage.TEST, dataloaders, None, datamodule), ckpt_path) as run:
            evaluate(run, Stage.TEST)
            return run.results()

    def predict(
        self,
        module: Module | None = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> list[Any]:
        """What `predict_step` returned for each batch; for several loaders a list of such lists.

        On several ranks each rank gets the predictions of its own batches.
        """
        if runs_elsewhere(self):
            found: list[Any] = run_elsewhere(self, "predict", module, dataloaders, datamodule, ckpt_path)
            return found
        with Session(self, module, Inputs(Stage.PREDICT, dataloaders, None, datamodule), ckpt_path) as run:
            outputs = evaluate(run, Stage.PREDICT, collect=True)
            return outputs if run.eval_loaders > 1 else outputs[0]


def _refuse(unknown: dict[str, Any]) -> NoReturn:
    """An argument that there is not."""
    known = [name for name in inspect.signature(Trainer).parameters if name != "unknown"]
    name, value = next(iter(unknown.items()))
    raise ConfigError(f"Trainer({name}=...)", got=value, do=did_you_mean(name, known))
