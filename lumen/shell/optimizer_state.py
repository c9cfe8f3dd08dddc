"""The state of optimizers and schedulers, keyed by the structural names of the parameters.

Paddle keys it by global counter names (`linear_0.w_0_moment1_0`), which depend on what else was built before: loading
them into a model built in another order fails at the first step, or silently gives a parameter another one's moments
(measured on 2.6.2 and 3.3.1). So the accumulators themselves are read and set, under `encoder.0.weight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lumen.errors import CheckpointError
from lumen.shell.optimizers import optimizer_parameters
from lumen.shell.paddle_shim import paddle
from lumen.shell.tensors import from_numpy, shape_and_type, to_numpy

_PLAIN = (bool, int, float, str, type(None))


def capture(optimizer: Any, module: Any) -> dict[str, Any]:
    """An optimizer's state: accumulators and master weights by structural name, and the learning rate.

    Args:
        optimizer: A `paddle.optimizer.Optimizer`.
        module: The layer whose parameters it steps.

    Raises:
        CheckpointError: It steps a parameter that is not the module's.
    """
    names = _names(module)
    accumulators = {
        kind: {_structural(names, name, kind): to_numpy(tensor) for name, tensor in by_parameter.items()}
        for kind, by_parameter in optimizer._accumulators.items()
    }
    masters = getattr(optimizer, "_master_weights", None) or {}
    return {
        "type": type(optimizer).__name__,
        "accumulators": accumulators,
        "master_weights": {_structural(names, name, "master"): to_numpy(tensor) for name, tensor in masters.items()},
        "lr": float(optimizer.get_lr()),
    }


def _names(module: Any) -> dict[str, str]:
    """Structural names by Paddle's names."""
    return {parameter.name: name for name, parameter in module.named_parameters()}


def _structural(names: Mapping[str, str], name: str, kind: str) -> str:
    if name not in names:
        raise CheckpointError(
            "the optimizer",
            got=f"{kind} of {name!r}, which is no parameter of the module",
            do="Give the optimizer only the module's own parameters.",
        )
    return names[name]


def restore(optimizer: Any, module: Any, saved: Mapping[str, Any]) -> None:
    """Sets an optimizer's state, or nothing of it; whether it stepped before or not, and whatever was built before it.

    Args:
        optimizer: Made as it was for the run that was saved.
        module: The layer whose parameters it steps.
        saved: What `capture` gave.

    Raises:
        CheckpointError: It is another optimizer's, or another model's.
    """
    if saved["type"] != type(optimizer).__name__:
        raise CheckpointError(
            "the optimizer", got=type(optimizer).__name__, allowed=f"{saved['type']}, as the checkpoint was saved with"
        )
    parameters = dict(module.named_parameters())
    stepped = {parameter.name for parameter in optimizer_parameters(optimizer)}
    needed = {name for by_name in saved["accumulators"].values() for name in by_name}
    unknown = sorted(name for name in needed if name not in parameters or parameters[name].name not in stepped)
    if unknown:
        raise CheckpointError(
            "the optimizer",
            got=f"no parameter {unknown[0]!r} to step",
            allowed="the parameters that the checkpoint has a state of",
            do="Give the optimizer the parameters that it had.",
        )
    targets = _accumulators(optimizer, [parameters[name] for name in parameters if name in needed])
    pairs = []
    for kind, by_name in saved["accumulators"].items():
        for name, value in by_name.items():
            target = targets.get(kind, {}).get(parameters[name].name)
            if target is None or tuple(target.shape) != shape_and_type(value)[0]:
                raise CheckpointError("the optimizer", got=f"a {kind} of {name!r} that it has not, or of another shape")
            pairs.append((target, value))
    for target, value in pairs:
        target.set_value(from_numpy(value))
    for name, value in saved.get("master_weights", {}).items():
        optimizer._master_weights[parameters[name].name] = paddle.to_tensor(from_numpy(value))
    if not isinstance(optimizer._learning_rate, paddle.optimizer.lr.LRScheduler):
        optimizer.set_lr(saved["lr"])
    if hasattr(optimizer, "_set_auxiliary_var"):
        optimizer._set_auxiliary_var("found_inf", False)


def _accumulators(optimizer: Any, parameters: list[Any]) -> Any:
    """The optimizer's accumulators, made for these parameters if it has not stepped yet."""
    if optimizer.helper is None:  # 2.6.2 makes it in the first step
        from paddle.base.layer_helper import LayerHelper

        optimizer.helper = LayerHelper(type(optimizer).__name__)
    missing = [p for p in parameters if not all(p.name in d for d in optimizer._accumulators.values())]
    if missing or not optimizer._accumulators:
        block = paddle.static.default_main_program().global_block()
        optimizer._create_accumulators(block, missing or parameters)
    return optimizer._accumulators


def scheduler_state(scheduler: Any) -> dict[str, Any]:
    """A scheduler's plain attributes, those of schedulers nested in it too.

    Paddle's own `state_dict` leaves some out (`T_cur` and `T_i` of CosineAnnealingWarmRestarts), so all are kept.
    """
    state: dict[str, Any] = {"type": type(scheduler).__name__}
    for name, value in vars(scheduler).items():
        if isinstance(value, paddle.optimizer.lr.LRScheduler):
            state[name] = {"nested": scheduler_state(value)}
        elif isinstance(value, np.generic):
            state[name] = value.item()
        elif isinstance(value, _PLAIN):
            state[name] = value
        elif isinstance(value, (list, tuple)) and all(isinstance(item, _PLAIN) for item in value):
            state[name] = list(value)
    return state


def restore_scheduler(scheduler: Any, saved: Mapping[str, Any]) -> None:
    """Sets back what `scheduler_state` gave.

    Raises:
        CheckpointError: It is another scheduler's.
    """
    if saved.get("type") != type(scheduler).__name__:
        raise CheckpointError(
            "the scheduler",
            got=type(scheduler).__name__,
            allowed=f"{saved.get('type')}, as the checkpoint was saved with",
        )
    for name, value in saved.items():
        now = getattr(scheduler, name, None)
        if isinstance(value, Mapping):
            if isinstance(now, paddle.optimizer.lr.LRScheduler):
                restore_scheduler(now, value["nested"])
        elif name != "type":
            setattr(scheduler, name, type(now)(value) if isinstance(now, (list, tuple)) else value)
