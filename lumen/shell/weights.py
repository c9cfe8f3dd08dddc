"""The weights of a layer as arrays by structural name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lumen.errors import CheckpointError, did_you_mean
from lumen.shell.paddle_shim import paddle
from lumen.shell.tensors import Stored, from_numpy, to_numpy


def weights(layer: Any) -> dict[str, Any]:
    """All parameters and persistable buffers of a layer, copied to the host."""
    return {name: to_numpy(tensor) for name, tensor in layer.state_dict().items()}
