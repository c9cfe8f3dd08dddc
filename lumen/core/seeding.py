"""Keys of the random streams: one number for each (seed, epoch, rank, stream)."""

from __future__ import annotations

import numpy as np

from lumen.errors import ConfigError, did_you_mean

STREAMS = {"paddle": 0, "numpy": 1, "python": 2, "worker": 3}
"""The streams; the numbers are part of every run's randomness and must not change."""


def stream_key(seed: int, epoch: int, rank: int, stream: str, *more: int) -> int:
    """The 32-bit seed of one stream.

    It is derived by numpy's `SeedSequence`, whose output is the same on all platforms and versions; adding the parts
    would make seed 1 at epoch 0 the same as seed 0 at epoch 1.

    Args:
        seed: The run's seed, >= 0.
        epoch: The epoch, >= 0.
        rank: The global rank, >= 0.
        stream: "paddle", "numpy", "python" or "worker".
        more: Further parts, >= 0, such as the number of a batch.

    Raises:
        ConfigError: There is no such stream.

    Example:
        >>> stream_key(0, 0, 0, "numpy") != stream_key(0, 0, 1, "numpy")
        True
    """
    if stream not in STREAMS:
        raise ConfigError("stream", got=stream, allowed=", ".join(STREAMS), do=did_you_mean(stream, STREAMS))
    sequence = np.random.SeedSequence((seed, epoch, rank, STREAMS[stream], *more))
    return int(sequence.generate_state(1, np.uint32)[0])
