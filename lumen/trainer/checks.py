"""What a module must have for an entry point, checked before anything is connected or started."""

from __future__ import annotations

import difflib
import logging
from typing import Any

from lumen.callbacks.base import HOOKS
from lumen.errors import ConfigError, ModuleError, did_you_mean
from lumen.loop.runtime import Stage
from lumen.module import Module
from lumen.shell.paddle_shim import paddle

_log = logging.getLogger("lumen")
_STRANGERS = {
    "training_epoch_end": "on_train_epoch_end",
    "validation_epoch_end": "on_validation_epoch_end",
    "test_epoch_end": "on_test_epoch_end",
    "training_step_end": "on_train_batch_end",
    "validation_step_end": "on_validation_batch_end",
    "optimizer_step": "",
    "optimizer_zero_grad": "",
    "lr_scheduler_step": "",
    "configure_callbacks": "",
    "configure_gradient_clipping": "",
    "backward": "",
    "train_dataloader": "a lumen.DataModule",
    "val_dataloader": "a lumen.DataModule",
    "test_dataloader": "a lumen.DataModule",
}
_METHODS = {
    Stage.FIT: ("training_step", "configure_optimizers"),
    Stage.VALIDATE: ("validation_step",),
    Stage.TEST: ("test_step",),
    Stage.PREDICT: (),
}


def check_module(module: Any, stage: Stage, validation: Any) -> Module:
    """The module, if it has what the stage calls.

    Args:
        module: What the user gave, or the Trainer's last module; None: neither.
        stage: The entry point.
        validation: The validation loaders of a fit; None: none.

    Raises:
        ConfigError: There is no module.
        ModuleError: It is none, or lacks a method.
    """
    if module is None:
        raise ConfigError(f"trainer.{stage.value}(module)", got="no module", do="Pass a lumen.Module.")
    if not isinstance(module, Module):
        raise ModuleError(
            f"trainer.{stage.value}(module)",
            got=module if isinstance(module, type) else type(module).__name__,
            allowed="a lumen.Module",
            do="Subclass lumen.Module, and pass an object of it.",
        )
    for method in _METHODS[stage]:
        check_method(module, method, stage)
    own_forward = type(module).forward is not paddle.nn.Layer.forward or "forward" in vars(module)
    if stage is Stage.PREDICT and not own_forward:
        check_method(module, "predict_step", stage)
    _warn_of_strangers(module)
    if stage is Stage.FIT and validation is not None:
        check_method(module, "validation_step", stage)
    return module


def check_method(module: Module, method: str, stage: Stage) -> None:
    """Refuses a module whose class does not write a method.

    Raises:
        ModuleError: It does not.
    """
    if getattr(type(module), method) is getattr(Module, method) and method not in vars(module):
        raise ModuleError(
            f"{type(module).__name__}.{method}",
            got="not written",
            do=f"trainer.{stage.value} needs it: write it in your Module.",
        )


def _warn_of_strangers(module: Module) -> None:
    """Warns of methods that Lightning calls and lumen does not, and of names that are nearly a hook's."""
    known = [*HOOKS, "training_step", "validation_step", "test_step", "predict_step", "configure_optimizers"]
    for name in {name for kind in type(module).__mro__ if kind not in Module.__mro__ for name in vars(kind)}:
        if name in _STRANGERS:
            instead = f" Use {_STRANGERS[name]}." if _STRANGERS[name] else ""
            _log.warning("%s.%s is not called by lumen.%s", type(module).__name__, name, instead)
        elif name not in known and difflib.get_close_matches(name, known, n=1, cutoff=0.9):
            _log.warning("%s.%s is not called by lumen. %s", type(module).__name__, name, did_you_mean(name, known))
