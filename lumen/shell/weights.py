"""The weights of a layer as arrays by structural name."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from lumen.errors import CheckpointError, did_you_mean
from lumen.shell.tensors import Stored, from_numpy, shape_and_type, to_numpy


def weights(layer: Any) -> dict[str, Stored]:
    """All parameters and persistable buffers of a layer, copied to the host."""
    return {name: to_numpy(tensor) for name, tensor in layer.state_dict().items()}


def load_weights(layer: Any, saved: Mapping[str, Stored], source: str) -> None:
    """Sets all weights of a layer, or none.

    Paddle's own `set_state_dict` neither raises for a missing, unexpected or wrongly shaped one nor stops there.

    Args:
        layer: The layer.
        saved: Its weights by name.
        source: Where they come from, for errors.

    Raises:
        CheckpointError: A weight is missing, too many, or of another shape or type.
    """
    now = layer.state_dict()
    for name, tensor in now.items():
        if name not in saved:
            raise CheckpointError(
                source, got=f"no weight {name!r}", do=f"It is another model's. {did_you_mean(name, saved)}"
            )
        shape, kind = shape_and_type(saved[name])
        wanted = tuple(tensor.shape)
        mine = str(tensor.dtype).rpartition(".")[2].lower()
        if shape != wanted or kind != mine:
            raise CheckpointError(
                source,
                got=f"{name!r} of shape {list(shape)} and type {kind}",
                allowed=f"shape {list(wanted)} and type {mine}, as in this model",
                do="Make the model as it was when it was saved.",
            )
    unexpected = sorted(set(saved) - set(now))
    if unexpected:
        raise CheckpointError(
            source, got=f"a weight {unexpected[0]!r} that this model has not", do="It is another model's."
        )
    for name, tensor in now.items():
        tensor.set_value(from_numpy(saved[name]))


def describe_parameters(module: Any) -> dict[str, str]:
    """The shape and dtype of each parameter, and whether it is trained, by its name."""
    return {
        name: f"{list(one.shape)} {str(one.dtype).rpartition('.')[2]}{', frozen' * bool(one.stop_gradient)}"
        for name, one in module.named_parameters()
    }


def fingerprints(module: Any) -> dict[str, str]:
    """A checksum (CRC-32) of each parameter's bytes, by its name."""
    return {name: f"{zlib.crc32(one.numpy().tobytes()):08x}" for name, one in module.named_parameters()}
