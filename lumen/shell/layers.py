"""The layer that several ranks train through, and how the user's step methods are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lumen.core.strategy import FleetStrategy
from lumen.errors import ModuleError
from lumen.shell.paddle_shim import paddle


class StepLayer(paddle.nn.Layer):
    """What `DataParallel` wraps: its forward is a step of the user's module.

    DataParallel arms its reducer in `forward`; a step called on the module itself would leave the gradients of the
    ranks apart without a word. The step is set as this object's `forward`, so that no frame stands between.

    Args:
        module: The user's module, a sublayer of this one.
        step: Name of its method to run as forward.
    """

    def __init__(self, module: Any, step: str = "training_step") -> None:
        super().__init__()
        self.module = module
        self.forward: Callable[..., Any] = getattr(module, step)


# Wrapping a layer a second time crashes Paddle, also when the first wrapper is gone (dangling hooks of its reducer):
# a wrapper, once made, is kept for the life of the process.
_wrapped: dict[int, tuple[Any, FleetStrategy]] = {}


def wrap_once(module: Any, strategy: FleetStrategy) -> Any:
    """The `DataParallel` around this module's training step; the same one at every call.

    Args:
        module: The user's module.
        strategy: The options of `DataParallel`.

    Raises:
        ModuleError: No parameter of the module is trainable, or it was wrapped with other options before.
    """
    if id(module) in _wrapped:
        layer, before = _wrapped[id(module)]
        if before != strategy:
            raise ModuleError(
                "strategy",
                got="other options of DataParallel than in an earlier fit of the same module",
                allowed="the same, since Paddle cannot wrap a module twice",
                do="Use one strategy for all fits, or gradient_sync='at_step'.",
            )
        return layer
    if not any(not parameter.stop_gradient for parameter in module.parameters()):
        raise ModuleError(
            "module", got="no trainable parameter", allowed="at least one", do="Leave stop_gradient of one False."
        )
    layer = paddle.DataParallel(
        StepLayer(module),
        comm_buffer_size=strategy.comm_buffer_size,
        last_comm_buffer_size=strategy.last_comm_buffer_size,
        find_unused_parameters=strategy.find_unused_parameters,
    )
    _wrapped[id(module)] = layer, strategy
    return layer


def call_style(module: Any, name: str, *, optional: tuple[str, ...]) -> int:
    """How many arguments a step method takes: the batch, and those of `optional` that its signature has room for.

    Raises:
        ModuleError: The method takes no batch, or demands more than it will be given.
    """
    method = getattr(module, name)
    parameters = [
        p
        for p in inspect.signature(method).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 1 + len(optional)
    required = sum(p.default is p.empty for p in parameters)
    by_name = [p for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if not parameters or required > 1 + len(optional) or any(p.default is p.empty for p in by_name):
        wanted = ", ".join(("batch", *optional))
        raise ModuleError(f"{name}{inspect.signature(method)}", allowed=f"{name}(self, {wanted})")
    return min(len(parameters), 1 + len(optional))
