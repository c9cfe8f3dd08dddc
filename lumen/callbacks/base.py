"""Callback: the hooks of a run, and the table of who overrides which."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer import Trainer


class Callback:
    """Base class: override the hooks you need; the others cost nothing.

    The order of a fit::

        setup(stage)
        on_load_checkpoint, load_state_dict          only on resume
        on_fit_start
        on_sanity_check_start, <validation>, on_sanity_check_end
        on_train_start
        per epoch:
            on_train_epoch_start                     not when resuming inside the epoch
            per batch:
                on_train_batch_start
                training_step
                on_before_backward, on_after_backward
                where a window closes:
                    on_before_optimizer_step, on_before_zero_grad
                on_train_batch_end
                where it is due: <validation>
            on_train_epoch_end                       after the validation of the epoch's last step
            on_train_epoch_logged                    the epoch's values are merged over the ranks
            where it is due: on_checkpoint           after all of the above: every state has moved
                on_save_checkpoint                   for each checkpoint that is written
        on_train_end
        on_fit_end
        teardown(stage)

    A validation: ``on_validation_start, on_validation_epoch_start``, per batch ``on_validation_batch_start,
    on_validation_batch_end``, then ``on_validation_epoch_end, on_validation_end``. Testing and predicting likewise.
    At each hook the callbacks come first, in the order given to the Trainer with checkpoint callbacks last, then the
    module.
    """

    @property
    def state_key(self) -> str:
        """Names this callback's state in a checkpoint; of several with one name the later ones are numbered."""
        return type(self).__qualname__

    def state_dict(self) -> Mapping[str, Any]:
        """What a checkpoint keeps of this callback: plain data and arrays."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` gave."""

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Before anything else; `stage` is "fit", "validate", "test" or "predict"."""

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """After everything else, also when the run failed."""

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """The model, the optimizers and the ranks are ready."""

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """The fit is over."""

    def on_sanity_check_start(self, trainer: Trainer, module: Module) -> None:
        """Before the few validation batches that run ahead of training."""

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """After them."""

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Training begins."""

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Training ended as planned or as requested."""

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """An epoch begins."""

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """An epoch ended, its validation included."""

    def on_train_epoch_logged(self, trainer: Trainer, module: Module) -> None:
        """The values of the epoch that ended are merged over the ranks and written."""

    def on_train_batch_start(self, trainer: Trainer, module: Module, batch: Any, batch_idx: int) -> None:
        """A batch is on the device."""

    def on_train_batch_end(self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch was trained on; `outputs` is what `training_step` returned."""

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Any) -> None:
        """The loss is computed."""

    def on_after_backward(self, trainer: Trainer, module: Module) -> None:
        """The gradients are computed."""

    def on_before_optimizer_step(self, trainer: Trainer, module: Module, optimizer: Any) -> None:
        """The gradients are complete and unscaled, not yet clipped."""

    def on_before_zero_grad(self, trainer: Trainer, module: Module, optimizer: Any) -> None:
        """The optimizer has stepped; the gradients are about to be cleared."""

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Validation begins."""

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Validation is over and its metrics are known."""

    def on_validation_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Before the first validation batch."""

    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """After the last validation batch; values may still be logged."""

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A validation batch is on the device."""

    def on_validation_batch_end(
        self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A validation batch was evaluated."""

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Testing begins."""

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Testing is over and its metrics are known."""

    def on_test_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Before the first test batch."""

    def on_test_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """After the last test batch; values may still be logged."""

    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A test batch is on the device."""

    def on_test_batch_end(
        self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A test batch was evaluated."""

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Predicting begins."""

    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Predicting is over."""

    def on_predict_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Before the first batch to predict."""

    def on_predict_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """After the last batch to predict."""

    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch to predict is on the device."""

    def on_predict_batch_end(
        self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch was predicted."""

    def on_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """A checkpoint may be due: after the validation of the same step, with every state moved. Runs on all ranks."""

    def on_save_checkpoint(self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is being written; plain data and arrays may be added to `checkpoint`."""

    def on_load_checkpoint(self, trainer: Trainer, module: Module, checkpoint: Mapping[str, Any]) -> None:
        """A checkpoint is being read; `checkpoint` holds what `on_save_checkpoint` added."""

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """The run failed on this rank; no collective may be called here."""


HOOKS: tuple[str, ...] = tuple(
    name for name in vars(Callback) if name.startswith("on_") or name in ("setup", "teardown")
)
"""Every hook, in the order in which `Callback` defines them."""


def overrides(owner: object, hook: str, base: type = Callback) -> bool:
    """Whether `owner` has a hook of its own, as a method of its class or as an attribute of the object.

    Example:
        >>> class Mine(Callback):
        ...     def on_fit_end(self, trainer, module): ...
        >>> overrides(Mine(), "on_fit_end"), overrides(Mine(), "on_fit_start")
        (True, False)
    """
    if hook in getattr(owner, "__dict__", ()):
        return True
    return getattr(type(owner), hook, None) is not getattr(base, hook, None)


def dispatch_table(
    callbacks: Sequence[Callback], module: object, module_base: type, arguments: tuple[Any, ...]
) -> dict[str, tuple[Callable[..., Any], ...]]:
    """Who is called at each hook, computed once per run.

    Args:
        callbacks: In the order in which they are called.
        module: The user's module; its hooks come last and take no trainer and no module.
        module_base: The class whose hooks do not count as overridden.
        arguments: What each callback's hook gets first: the trainer and the module.

    Returns:
        For each hook a tuple of callables that take only the hook's own arguments; empty where nobody overrides it.
    """
    table: dict[str, tuple[Callable[..., Any], ...]] = {}
    for hook in HOOKS:
        calls: list[Callable[..., Any]] = [
            functools.partial(getattr(callback, hook), *arguments)
            for callback in callbacks
            if overrides(callback, hook)
        ]
        if hasattr(module_base, hook) and overrides(module, hook, module_base):
            calls.append(getattr(module, hook))
        table[hook] = tuple(calls)
    return table
