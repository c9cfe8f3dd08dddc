"""PaddleRuntime: the effects of a run, carried out by paddle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from lumen.core.planning import StepPlan
from lumen.core.policy import Clip
from lumen.core.progress import Progress
from lumen.core.strategy import FleetStrategy
from lumen.errors import ModuleError
from lumen.loop.runtime import Fetched, Hooks, Stage
from lumen.shell import numbers
from lumen.shell.gradients import GradientSync, Overlap, gradient_sync
from lumen.shell.layers import call_style
from lumen.shell.optimizers import OptimizerSetup, optimizer_parameters
from lumen.shell.paddle_shim import gpu_count, paddle
from lumen.shell.precision import Precision, clipper
from lumen.shell.ranks.cluster import Cluster
from lumen.shell.rng import Streams
from lumen.shell.sources.base import Source, Span, least
from lumen.shell.train_data import TrainData
from lumen.shell.transfer import to_device

_NOTHING = contextlib.nullcontext()
_STEPS = {
    Stage.SANITY: "validation_step",
    Stage.VALIDATE: "validation_step",
    Stage.TEST: "test_step",
    Stage.PREDICT: "predict_step",
}


class PaddleRuntime:
    """What the loops need, on one rank.

    Args:
        cluster: The ranks, connected.
        module: The user's module, on the device.
        precision: How the run computes.
        streams: The randomness of the run.
        batch_size_of: Samples in a batch.
        strategy: How the ranks work together.
        place: Where batches go.
    """

    def __init__(
        self,
        cluster: Cluster,
        module: Any,
        precision: Precision,
        streams: Streams,
        batch_size_of: Callable[[Any], int],
        strategy: FleetStrategy,
        place: Any,
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._place = place if gpu_count() else None
        self.module = module
        self.precision = precision
        self.streams = streams
        self.hooks = {}
        self.batch_size = batch_size_of
        self.strategy = strategy
        self.setup: OptimizerSetup | None = None
        self.eval_sources: Sequence[tuple[Source, int | None]] = ()
        self.sanity_limit = -1
        self._train: TrainData | None = None
        self._sync: GradientSync
        self._evaluation = contextlib.ExitStack()
        self._eval_step: Callable[..., Any] = lambda *_: None
        self._eval_arity = 1
        self._step: Callable[..., Any] = lambda *_: None
        self._takes_index = True
        self._clip: Callable[[Any], Any] | None = None
        self._checked = False
        self._scoped = precision.casts
        self._optimizer: Any = None

    @property
    def hooks(self) -> Hooks:
        """Who is called at each hook."""
        return self._hooks

    @hooks.setter
    def hooks(self, hooks: Hooks) -> None:
        self._hooks = hooks
        # looked up once: a step calls each of them
        self._before_backward = hooks.get("on_before_backward", ())
        self._after_backward = hooks.get("on_after_backward", ())
        self._before_step = hooks.get("on_before_optimizer_step", ())
        self._before_zero_grad = hooks.get("on_before_zero_grad", ())

    # -- set up -----------------------------------------------------------------------------------------------------

    def prepare_training(
        self, setup: OptimizerSetup, clip: Clip | None, source: Source, limit: int | None, wrapper: Any
    ) -> None:
        """Takes the optimizer and the training data; wraps the module for several ranks.

        Args:
            setup: The optimizer and its scheduler.
            clip: How gradients are clipped.
            source: The training batches.
            limit: Most batches in an epoch; None: all.
            wrapper: The user's own `DataParallel` around the module; None: there is none.
        """
        self.setup = setup
        self._optimizer = setup.optimizer
        self._clip = clipper(clip.value, clip.algorithm) if clip is not None else None
        self._train = TrainData(source, limit, self.world, self.gather, pad=self.strategy.uneven_data == "pad")
        self._takes_index = call_style(self.module, "training_step", optional=("batch_idx",)) > 1
        self.cluster.wait("parameters")  # what came before may have taken one rank longer than gloo waits
        self._sync = gradient_sync(self.module, self.world, self.strategy, wrapper, self.gather)
        self._step = self._sync.step
        self._scoped = self.precision.casts or isinstance(self._sync, Overlap)
        self._checked = False

    # -- data -------------------------------------------------------------------------------------------------------

    def train_length(self, progress: Progress) -> int | None:
        """Batches of the present epoch, as all ranks agree on them."""
        return self.train_data.length(progress)

    def train_batches(self, progress: Progress) -> Generator[Fetched, None, None]:
        """What is left of the present epoch."""
        if progress.batch == 0:
            self.streams.begin_epoch(progress.epoch)
        for batch, samples, last in self.train_data.batches(progress, self.streams):
            yield to_device(batch, self._place), samples, last

    def eval_batches(self, stage: Stage, loader: int) -> Iterator[Fetched]:
        """The batches of one evaluation loader."""
        source, limit = self.eval_sources[loader]
        if stage is Stage.SANITY and self.sanity_limit >= 0:
            limit = least(limit, self.sanity_limit)
        for batch, samples, last in source.epoch(Span(limit=limit)):
            yield to_device(batch, self._place), samples, last

    @property
    def train_data(self) -> TrainData:
        """The training data; there are some once `prepare_training` was called."""
        if self._train is None:
            raise RuntimeError("prepare_training comes first")
        return self._train

    # -- training ---------------------------------------------------------------------------------------------------

    def forward_backward(self, batch: Any, batch_idx: int, plan: StepPlan) -> Any:
        """One batch's forward and backward."""
        if self._scoped:
            with self._sync.forward_scope(last=plan.sync_grads), self.precision.autocast():
                outputs = self._step(batch, batch_idx) if self._takes_index else self._step(batch)
        else:
            outputs = self._step(batch, batch_idx) if self._takes_index else self._step(batch)
        loss: Any = outputs.get("loss") if type(outputs) is dict else outputs
        if not self._checked or loss is None or loss.stop_gradient:
            self._check(loss, outputs)
        for call in self._before_backward:
            call(loss)
        if plan.loss_weight != 1.0:
            loss = loss * plan.loss_weight
        if self.precision.scaler is not None:
            loss = self.precision.scale(loss)
        loss.backward()
        for call in self._after_backward:
            call()
        return outputs

    def _check(self, loss: Any, outputs: Any) -> None:
        """Refuses what Paddle would run backward on without a word."""
        allowed = "a tensor with one element that depends on the parameters, or a dict with it under 'loss'"
        if not isinstance(loss, paddle.Tensor):
            got: object = f"a dict with {', '.join(map(repr, outputs))}" if isinstance(outputs, dict) else outputs
            raise ModuleError(
                "training_step's return value",
                got="None" if outputs is None else got if isinstance(outputs, dict) else f"a {type(outputs).__name__}",
                allowed=allowed,
            )
        if loss.size != 1:
            raise ModuleError(
                "training_step's return value",
                got=f"shape {list(loss.shape)}",
                allowed=allowed,
                do="Return loss.mean().",
            )
        if loss.stop_gradient:
            raise ModuleError(
                "training_step's return value",
                got="a tensor without a gradient",
                allowed=allowed,
                do="Do not detach the loss, and leave stop_gradient of the parameters False.",
            )
        self._checked = True

    def optimizer_step(self, plan: StepPlan) -> bool:
        """Unscale, rescale, clip, step, clear."""
        optimizer, precision = self._optimizer, self.precision
        parameters = optimizer_parameters(optimizer)
        self._sync.reduce(parameters)  # before the scaler looks: all ranks must find the same infinities
        found_inf = precision.scaler is not None and precision.unscale([optimizer])
        if plan.grad_rescale != 1.0:
            _rescale(parameters, plan.grad_rescale)
        for call in self._before_step:
            call(optimizer)
        if self._clip is not None and not found_inf:
            self._clip(parameters)
        if precision.scaler is None:
            optimizer.step()
            stepped = True
        else:
            stepped = precision.step([optimizer], found_inf)
        for call in self._before_zero_grad:
            call(optimizer)
        # None instead of zeros: AdamW would go on moving a parameter whose gradient is a zero tensor. One by one, since
        # optimizer.clear_grad costs 2 to 3 % of a small model's step (measured on 2.6.2 and 3.3.1)
        for parameter in parameters:
            parameter.clear_gradient(False)
        return stepped

    def scheduler_step(self) -> None:
        """Moves the scheduler."""
        if self.setup is not None:
            self.setup.scheduler.step()

    # -- evaluation -------------------------------------------------------------------------------------------------

    def eval_begin(self, stage: Stage) -> None:
        """Evaluation mode; each layer's own mode is set back by `eval_end`."""
        modes = [(layer, layer.training) for layer in self.module.sublayers(include_self=True)]
        stack = self._evaluation = contextlib.ExitStack()
        stack.callback(_set_modes, modes)
        stack.enter_context(self.streams.isolated())
        stack.enter_context(paddle.no_grad())
        self.module.eval()
        name = _STEPS[stage]
        self._eval_step = getattr(self.module, name)
        self._eval_arity = call_style(self.module, name, optional=("batch_idx", "dataloader_idx"))

    def eval_step(self, stage: Stage, batch: Any, batch_idx: int, loader: int) -> Any:
        """One batch of an evaluation."""
        with self.precision.autocast() if self.precision.casts else _NOTHING:
            return self._eval_step(*(batch, batch_idx, loader)[: self._eval_arity])

    def eval_end(self, stage: Stage) -> None:
        """Back to training."""
        self._evaluation.close()

    # -- ranks and numbers ------------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def gather(self, kind: str, value: Any) -> list[Any]:
        """The plain value of every rank."""
        return self.cluster.gather(kind, value)

    read = staticmethod(numbers.read)
    fold = staticmethod(numbers.fold)
    held = staticmethod(numbers.held)
    check_scalar = staticmethod(numbers.check_scalar)


def _rescale(parameters: Sequence[Any], factor: float) -> None:
    with paddle.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.scale_(factor)


def _set_modes(modes: list[tuple[Any, bool]]) -> None:
    for layer, training in modes:
        layer.training = training
