"""Module: a paddle layer that says how it is trained."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from lumen.errors import ConfigError, ModuleError, did_you_mean
from lumen.hooks import ModuleHooks
from lumen.shell.paddle_shim import paddle
from lumen.shell.transfer import batch_size_of

if TYPE_CHECKING:
    from lumen.trainer import Trainer


class Hyperparameters(dict[str, Any]):
    """Constructor arguments, as a dict whose entries are attributes too.

    Example:
        >>> Hyperparameters(lr=0.1).lr
        0.1
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"hparams has no {name!r}. {did_you_mean(name, self)}") from None


class Module(ModuleHooks, paddle.nn.Layer):
    """The user's model: subclass it, write `training_step` and `configure_optimizers`.

    It is an ordinary `paddle.nn.Layer`: layers go into `__init__`, and `forward` is free for inference.

    Example:
        >>> class Net(Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = paddle.nn.Linear(4, 2)
        ...     def training_step(self, batch, batch_idx):
        ...         x, y = batch
        ...         loss = paddle.nn.functional.cross_entropy(self.linear(x), y)
        ...         self.log("train_loss", loss)
        ...         return loss
        ...     def configure_optimizers(self):
        ...         return paddle.optimizer.AdamW(parameters=self.parameters())
        >>> Net().hparams
        {}
    """

    _log: Any = None
    _trainer: Trainer | None = None
    _hparams: Hyperparameters | None = None

    # -- what the user writes ---------------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss of one batch: a tensor with one element, or a dict that holds it under "loss".

        Args:
            batch: What the loader gave, on the device.
            batch_idx: Its number in the epoch, from 0. A method that has no use for it may leave it out.
        """
        raise _missing(self, "training_step", "fit")

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Evaluates one batch; `dataloader_idx` may be left out."""
        raise _missing(self, "validation_step", "validate")

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Tests one batch; `dataloader_idx` may be left out."""
        raise _missing(self, "test_step", "test")

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Predicts one batch: by default the layer's own `forward` on the batch, or on its first element."""
        return self(batch[0] if isinstance(batch, (list, tuple)) else batch)

    def configure_optimizers(self) -> Any:
        """One optimizer, or one with a `paddle.optimizer.lr` scheduler: `{"optimizer": ..., "lr_scheduler": {...}}`.

        The scheduler's interval is "epoch" (the default) or "step", its frequency an int >= 1.
        """
        raise _missing(self, "configure_optimizers", "fit")

    def batch_size_of(self, batch: Any) -> int:
        """Samples in a batch, by which the logged values are weighted: the leading dimension of its first array.

        Override it where that is not so (graphs, packed sequences, lists of strings).
        """
        return batch_size_of(batch)

    # -- what the user calls ----------------------------------------------------------------------------------------

    @property
    def trainer(self) -> Trainer:
        """The Trainer that runs this module.

        Raises:
            ModuleError: None does.
        """
        if self._trainer is None:
            raise ModuleError(
                "module.trainer", got="no Trainer", do="It exists during fit, validate, test and predict."
            )
        return self._trainer

    @property
    def current_epoch(self) -> int:
        """Number of the epoch in hand, from 0."""
        return self._trainer.current_epoch if self._trainer is not None else 0

    @property
    def global_step(self) -> int:
        """Optimizer steps attempted."""
        return self._trainer.global_step if self._trainer is not None else 0

    def log(
        self,
        name: str,
        value: Any,
        *,
        prog_bar: bool = False,
        logger: bool = True,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str = "mean",
        batch_size: int | None = None,
        sync_dist: bool | None = None,
    ) -> None:
        """Logs a value under a name; on every rank, whatever the rank or the data.

        The value stays on the device until the run reads it: a step that is not logged costs no host read. An epoch
        value is one number over all samples of all ranks.

        Args:
            name: The name, the same at every call from one place.
            value: A number, or a tensor with one element.
            prog_bar: Show it in the progress bar.
            logger: Hand it to the loggers.
            on_step: Log the step's value (the mean over its window and the ranks); default: in training batches.
            on_epoch: Log one value for the epoch; default: everywhere but in training batches.
            reduce_fx: "mean" (weighted by samples), "sum", "min" or "max".
            batch_size: Weight of this value; default: what `batch_size_of` says of the batch.
            sync_dist: Taken for the sake of Lightning's users; values are merged over the ranks with or without it.

        Raises:
            ConfigError: An argument is wrong, or nothing can be logged here.
            DataError: The value is not one number.
        """
        if self._log is None:
            _warn_unattached()
            return
        self._log(
            name,
            value,
            prog_bar=prog_bar,
            logger=logger,
            on_step=on_step,
            on_epoch=on_epoch,
            reduce_fx=reduce_fx,
            batch_size=batch_size,
        )

    def log_dict(self, values: Mapping[str, Any], **options: Any) -> None:
        """Logs several values with the same options; see `log`."""
        for name, value in values.items():
            self.log(name, value, **options)

    @property
    def hparams(self) -> Hyperparameters:
        """What `save_hyperparameters` collected."""
        if self._hparams is None:
            self._hparams = Hyperparameters()
        return self._hparams

    def save_hyperparameters(self, *names: str, ignore: str | tuple[str, ...] = ()) -> None:
        """Keeps the arguments of the `__init__` that calls this, for checkpoints and loggers.

        Args:
            names: The arguments to keep; none given: all.
            ignore: Arguments to leave out.

        Raises:
            ConfigError: A name is not an argument of `__init__`.
        """
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        given = _init_arguments(caller) if caller is not None else {}
        left_out = (ignore,) if isinstance(ignore, str) else tuple(ignore)
        for name in (*names, *left_out):
            if name not in given:
                raise ConfigError(
                    "save_hyperparameters",
                    got=name,
                    allowed=", ".join(given) or "nothing",
                    do=did_you_mean(name, given),
                )
        chosen = names or tuple(given)
        self.hparams.update({name: given[name] for name in chosen if name not in left_out})


def _init_arguments(frame: FrameType) -> dict[str, Any]:
    """The arguments of the function that runs in a frame, without self."""
    arguments, varargs, keywords, values = inspect.getargvalues(frame)
    found = {name: values[name] for name in arguments[1:]}
    if keywords is not None:
        found.update(values[keywords])
    found.pop("__class__", None)
    if varargs is not None:
        found.pop(varargs, None)
    return found


def _missing(module: Module, method: str, entry: str) -> ModuleError:
    return ModuleError(
        f"{type(module).__name__}.{method}", got="not written", do=f"trainer.{entry} needs it: write it in your Module."
    )


def _warn_unattached() -> None:
    warnings.warn("self.log was called without a Trainer: the value is dropped.", stacklevel=3)
