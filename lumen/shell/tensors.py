"""Tensors as arrays that a file can hold, and back."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from lumen.shell.paddle_shim import paddle


@attrs.frozen(eq=False)
class BFloat16:
    """The bits of a bfloat16 tensor: numpy has no such type, and Paddle gives it as uint16.

    Args:
        bits: uint16, of the tensor's shape.
    """

    bits: np.ndarray[Any, np.dtype[np.uint16]]


Stored = np.ndarray[Any, Any] | BFloat16


def to_numpy(tensor: Any) -> Stored:
    """A copy of a tensor on the host."""
    array = np.array(tensor.numpy(), copy=True, order="C")
    return BFloat16(array) if tensor.dtype == paddle.bfloat16 else array


def from_numpy(stored: Stored) -> Any:
    """What `Tensor.set_value` and `set_state_dict` take for a stored tensor."""
    return paddle.to_tensor(stored.bits) if isinstance(stored, BFloat16) else stored


def shape_and_type(stored: Stored) -> tuple[tuple[int, ...], str]:
    """Shape and the name of the type, for comparison and for messages."""
    if isinstance(stored, BFloat16):
        return stored.bits.shape, "bfloat16"
    return stored.shape, str(stored.dtype)
