"""What a module must have for an entry point, checked before anything is connected or started."""

from __future__ import annotations

from typing import Any

from lumen.errors import ConfigError, ModuleError
from lumen.loop.runtime import Stage
from lumen.module import Module

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
