"""Reading what `configure_optimizers` returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from lumen.core.cadence import Every, Unit
from lumen.errors import ConfigError, ModuleError, did_you_mean
from lumen.shell.paddle_shim import paddle

_SHAPES = (
    "an optimizer; {'optimizer': ..., 'lr_scheduler': scheduler or {'scheduler': ..., 'interval': 'epoch' or 'step', "
    "'frequency': n}}; or ([optimizer], [scheduler])"
)
_CONFIG_KEYS = ("scheduler", "interval", "frequency", "name")


@attrs.frozen(kw_only=True)
class OptimizerSetup:
    """The optimizer of a run and its scheduler.

    Args:
        optimizer: A `paddle.optimizer.Optimizer`.
        scheduler: A `paddle.optimizer.lr.LRScheduler`, or None.
        schedule: How often the scheduler moves, in steps or epochs; None without one.
    """

    optimizer: Any
    scheduler: Any = None
    schedule: Every | None = None


def read_optimizers(returned: Any, module: Any) -> OptimizerSetup:
    """What a module's `configure_optimizers` asks for.

    A scheduler moves once an epoch unless its interval says otherwise, as in Lightning; one that is only given to
    the optimizer as its learning rate, as Paddle users write it, too.

    Args:
        returned: What the method returned.
        module: Whose parameters it must step.

    Raises:
        ModuleError: It is none of the accepted shapes.
        ConfigError: A key or a value of a scheduler's configuration is unknown.
    """
    optimizer, scheduler = _split(returned)
    if not isinstance(optimizer, paddle.optimizer.Optimizer):
        raise _refuse(returned)
    if not optimizer._parameter_list:
        raise ModuleError(
            "configure_optimizers", got="an optimizer without parameters", do="Give it parameters=self.parameters()."
        )
    own = {id(parameter) for parameter in module.parameters()}
    if any(id(parameter) not in own for parameter in optimizer_parameters(optimizer)):
        raise ModuleError(
            "configure_optimizers",
            got="an optimizer with a parameter that is not the module's",
            do="Give it parameters=self.parameters(), or some of them; make other layers attributes of the module.",
        )
    attached = optimizer._learning_rate if isinstance(optimizer._learning_rate, _scheduler_class()) else None
    config: Mapping[str, Any] = scheduler if isinstance(scheduler, Mapping) else {"scheduler": scheduler}
    if not isinstance(scheduler, Mapping) and scheduler is None:
        config = {"scheduler": attached}
    return _with_scheduler(optimizer, config, attached)


def optimizer_parameters(optimizer: Any) -> list[Any]:
    """The parameters that an optimizer steps, those of all its groups."""
    parameters: list[Any] = optimizer._parameter_list
    if parameters and isinstance(parameters[0], dict):
        return [parameter for group in optimizer._param_groups for parameter in group["params"]]
    return parameters


def _scheduler_class() -> type:
    kind: type = paddle.optimizer.lr.LRScheduler
    return kind


def _split(returned: Any) -> tuple[Any, Any]:
    """The optimizer and the scheduler, or its configuration, in any of the accepted shapes."""
    if isinstance(returned, Mapping):
        unknown = set(returned) - {"optimizer", "lr_scheduler", "monitor"}
        if unknown or "optimizer" not in returned:
            raise _refuse(returned)
        return returned["optimizer"], returned.get("lr_scheduler")
    if isinstance(returned, Sequence):
        parts = list(returned)
        if len(parts) == 1:
            return _split(parts[0])
        if len(parts) == 2 and all(isinstance(part, Sequence) and len(part) == 1 for part in parts):
            return parts[0][0], parts[1][0]
        raise _refuse(returned)
    return returned, None


def _with_scheduler(optimizer: Any, config: Mapping[str, Any], attached: Any) -> OptimizerSetup:
    for key in config:
        if key not in _CONFIG_KEYS:
            raise ConfigError(
                "configure_optimizers: lr_scheduler",
                got=key,
                allowed=", ".join(_CONFIG_KEYS),
                do=did_you_mean(key, _CONFIG_KEYS),
            )
    scheduler = config.get("scheduler")
    if scheduler is None:
        return OptimizerSetup(optimizer=optimizer)
    if not isinstance(scheduler, _scheduler_class()):
        raise ModuleError(
            "configure_optimizers: lr_scheduler", got=scheduler, allowed="a paddle.optimizer.lr.LRScheduler"
        )
    if isinstance(scheduler, paddle.optimizer.lr.ReduceOnPlateau):
        raise ModuleError(
            "configure_optimizers: lr_scheduler",
            got="ReduceOnPlateau",
            allowed="a scheduler that moves by steps or epochs",
            do="Schedulers that watch a metric are not supported yet.",
        )
    if attached is not scheduler:
        if attached is not None:
            raise ConfigError(
                "configure_optimizers: lr_scheduler",
                got="a scheduler other than the optimizer's learning rate",
                allowed="one scheduler for an optimizer",
                do="Pass the same scheduler as learning_rate= of the optimizer.",
            )
        optimizer.set_lr_scheduler(scheduler)
    return OptimizerSetup(optimizer=optimizer, scheduler=scheduler, schedule=_schedule(config))


def _schedule(config: Mapping[str, Any]) -> Every:
    """How often the scheduler moves."""
    interval, frequency = config.get("interval", "epoch"), config.get("frequency", 1)
    if interval not in ("epoch", "step"):
        raise ConfigError(
            "configure_optimizers: interval",
            got=interval,
            allowed="'epoch' or 'step'",
            do=did_you_mean(str(interval), ["epoch", "step"]),
        )
    if not isinstance(frequency, int) or isinstance(frequency, bool) or frequency < 1:
        raise ConfigError("configure_optimizers: frequency", got=frequency, allowed="an int >= 1")
    return Every(frequency, Unit(interval))


def _refuse(returned: Any) -> ModuleError:
    return ModuleError(
        "configure_optimizers",
        got=returned if returned is not None else "None",
        allowed=_SHAPES,
        do="Return the optimizer, made with parameters=self.parameters().",
    )
