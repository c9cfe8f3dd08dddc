"""What a module must have for an entry point, checked before anything is connected or started."""

from __future__ import annotations

import difflib
import logging
from typing import Any

from lumen.callbacks.base import HOOKS
from lumen.core.strategy import FleetStrategy
from lumen.errors import ConfigError, ModuleError, did_you_mean
from lumen.loop.runtime import Stage
from lumen.module import Module
from lumen.shell.gradients import parallel_layers
from lumen.shell.paddle_shim import paddle
from lumen.shell.ranks.cluster import Cluster

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


def unwrap(given: Any) -> tuple[Any, Any]:
    """The user's `DataParallel`, or None, and what is in it.

    Args:
        given: What an entry point was given.

    Raises:
        ModuleError: What is in it is no lumen.Module.
    """
    if not isinstance(given, paddle.DataParallel):
        return None, given
    inner = given._layers
    if not isinstance(inner, Module):
        raise ModuleError(
            "module",
            got=f"a paddle.DataParallel around a {type(inner).__name__}",
            allowed="one around a lumen.Module, whose training_step and configure_optimizers it then runs",
            do=f"Write a lumen.Module that holds the {type(inner).__name__}, and wrap that.",
        )
    return given, inner


def check_wrapped(cluster: Cluster, module: Module, wrapper: Any, strategy: FleetStrategy) -> None:
    """Where the program called `fleet.init` itself: wants its `DataParallel`, and tells what is not used.

    Args:
        cluster: The ranks.
        module: The module to fit.
        wrapper: The user's `DataParallel` around it, or None.
        strategy: What the Trainer was asked for.

    Raises:
        ModuleError: Nothing is wrapped.
    """
    if not cluster.outside:
        return
    if wrapper is None and not parallel_layers(module):
        raise ModuleError(
            "module",
            got=f"a {type(module).__name__} that is not wrapped, after fleet.init",
            allowed=f"paddle.DataParallel({type(module).__name__}(...))",
            do="Wrap it as you called fleet.init, or leave both to lumen: remove the call.",
        )
    if strategy != FleetStrategy():
        _log.warning(
            "Trainer(strategy=) is not used: fleet.init was called before, and the module is wrapped. Give its options "
            "to fleet.init and paddle.DataParallel."
        )


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
