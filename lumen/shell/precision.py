"""Precision: casting of the forward pass, and the scaled optimizer step."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from lumen.shell.paddle_shim import paddle

PrecisionName = Literal["32-true", "bf16-mixed", "16-mixed"]
_log = logging.getLogger("lumen")
_DTYPES = {"bf16-mixed": "bfloat16", "16-mixed": "float16"}


class Precision:
    """How a run computes: what is cast, and how an optimizer step is made.

    Args:
        name: "32-true", "bf16-mixed" or "16-mixed".
        on_gpu: Whether the run is on a GPU. Paddle's auto_cast has no effect on a CPU (measured on 2.6.2 and 3.3.1):
            there the run is 32-true, and says so.
        scaler: A grad scaler to use in place of the one that "16-mixed" makes.

    Attributes:
        casts: Whether the forward pass must run inside `autocast`.
    """

    def __init__(self, name: str, *, on_gpu: bool, scaler: Any = None) -> None:
        self.name = name if on_gpu or name == "32-true" else "32-true"
        if self.name != name:
            _log.warning("precision=%r: Paddle casts nothing on a CPU, so this run is 32-true.", name)
        self._dtype = _DTYPES.get(self.name)
        self.casts = self._dtype is not None
        if scaler is None and self.name == "16-mixed":
            scaler = paddle.amp.GradScaler(init_loss_scaling=2.0**16)
        self.scaler = scaler

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context of a forward pass."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return paddle.amp.auto_cast(enable=True, level="O1", dtype=self._dtype)

    def scale(self, loss: Any) -> Any:
        """The loss to call backward on."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizers: Sequence[Any]) -> bool:
        """Divides the gradients by the scale; returns whether any of any optimizer is infinite or NaN.

        Paddle's scaler keeps one flag, which each optimizer's unscaling overwrites: the flags are joined here.
        """
        if self.scaler is None:
            return False
        found = False
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)
            found = found or bool(self.scaler._found_inf)
        return found

    def step(self, optimizers: Sequence[Any], found_inf: bool) -> bool:
        """Steps all optimizers or none, and updates the scale once; returns whether the weights changed."""
        if self.scaler is None:
            for optimizer in optimizers:
                optimizer.step()
            return True
        if not found_inf:
            for optimizer in optimizers:
                # cleared, or a skip before makes a plain step a skip too (Paddle lets the flag stick)
                optimizer._set_auxiliary_var("found_inf", False)
                optimizer.step()
        self._update(found_inf)
        return not found_inf

    def _update(self, found_inf: bool) -> None:
        scaler = self.scaler
        for name in ("_cache_found_inf", "_cache_founf_inf"):  # 3.3.1 and 2.6.2 spell it differently
            if hasattr(scaler, name):
                setattr(scaler, name, found_inf)
        if found_inf:
            # with numpy >= 2.4 Paddle's own update fails on float() of a one-element tensor: give it a 0-d one
            scaler._scale = scaler._scale.reshape([])
        try:
            scaler.update()
        finally:
            if found_inf:
                scaler._scale = scaler._scale.reshape([1])
            scaler._optimizer_states.clear()  # Paddle itself does so only for dynamic scaling

    def state(self) -> dict[str, Any]:
        """The scaler's state as plain data; empty without one."""
        if self.scaler is None:
            return {}
        return {
            key: value.tolist() if hasattr(value, "tolist") else value
            for key, value in self.scaler.state_dict().items()
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict({k: np.asarray(v, "float32") if k == "scale" else v for k, v in state.items()})


def clipper(value: float | None, algorithm: str) -> Callable[[Sequence[Any]], Any] | None:
    """What clips the gradients of some parameters in place; None without a limit.

    Args:
        value: The largest global norm, or the largest absolute element, > 0.
        algorithm: "norm" or "value".
    """
    if not value:
        return None
    if algorithm == "value":
        return lambda parameters: paddle.nn.utils.clip_grad_value_(parameters, value)
    return lambda parameters: paddle.nn.utils.clip_grad_norm_(parameters, value)
