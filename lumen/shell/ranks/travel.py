"""What travels between this program and ranks that are new processes: objects as cloudpickle has them, and tensors."""

from __future__ import annotations

import importlib
import io
import pickle  # noqa: TID251 - of this program's own values, in a folder that only its user can read
from collections.abc import Mapping, Sequence
from typing import Any

from lumen.shell.paddle_shim import paddle
from lumen.shell.tensors import Stored, from_numpy, to_numpy

_PLAIN = (bool, int, float, str, type(None), dict, list, tuple)


def pack(value: Any, known: Sequence[Any] = ()) -> bytes:
    """A value as bytes; functions and classes of a prompt, a notebook or a function travel too.

    Args:
        value: Anything that cloudpickle takes, and tensors, parameters and places, which Paddle 2.6.2 does not pickle.
        known: What the other side has already: only the position in this list travels.

    Raises:
        Exception: Whatever pickling the value raises.
    """
    import cloudpickle

    positions = {id(one): index for index, one in enumerate(known)}

    class Packer(cloudpickle.Pickler):
        def persistent_id(self, obj: Any) -> int | None:
            return positions.get(id(obj))

        def reducer_override(self, obj: Any) -> Any:
            return _reduced(obj) or super().reducer_override(obj)

    stream = io.BytesIO()
    Packer(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def unpack(data: bytes, known: Sequence[Any] = ()) -> Any:
    """What `pack` packed.

    Args:
        data: Its bytes.
        known: What takes the places of those that were known there, in the same order.
    """

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, pid: int) -> Any:
            return known[pid]

    return Unpacker(io.BytesIO(data)).load()


def name_counters() -> dict[str, int]:
    """How many names of each kind Paddle has given: a layer built elsewhere must not get one that travelled there."""
    return dict(_generator().ids)


def set_name_counters(counters: Mapping[str, int]) -> None:
    """Goes on counting where `name_counters` was."""
    _generator().ids.update(counters)


def _generator() -> Any:
    return importlib.import_module("paddle.base.unique_name").generator


def _reduced(value: Any) -> tuple[Any, ...] | None:
    """How Paddle's own objects are built again; None for all others."""
    if isinstance(value, paddle.base.framework.EagerParamBase):
        plain = {name: own for name, own in vars(value).items() if isinstance(own, _PLAIN)}
        return _parameter, (to_numpy(value), value.name, value.stop_gradient, plain)
    if isinstance(value, paddle.Tensor):
        return _tensor, (to_numpy(value), value.name, value.stop_gradient, value.persistable)
    kind = type(value).__name__
    if kind in ("Place", "CPUPlace", "CUDAPlace", "CUDAPinnedPlace"):
        gpu = kind == "CUDAPlace" or (kind == "Place" and value.is_gpu_place())
        return _place, (value.gpu_device_id() if kind == "Place" else value.get_device_id(),) if gpu else ()
    return None


def _tensor(stored: Stored, name: str, stop_gradient: bool, persistable: bool) -> Any:
    tensor = paddle.to_tensor(from_numpy(stored))
    tensor.name, tensor.stop_gradient, tensor.persistable = name, stop_gradient, persistable
    return tensor


def _parameter(stored: Stored, name: str, stop_gradient: bool, plain: dict[str, Any]) -> Any:
    tensor = _tensor(stored, name, stop_gradient, True)
    parameter = paddle.base.framework.EagerParamBase.from_tensor(tensor, name=name)
    vars(parameter).update(plain)
    parameter.stop_gradient = stop_gradient
    return parameter


def _place(*gpu: int) -> Any:
    return paddle.CUDAPlace(*gpu) if gpu else paddle.CPUPlace()
