"""Seeding the three global generators that a run meets: Paddle's, numpy's and Python's."""

from __future__ import annotations

import random

import numpy as np

from lumen.errors import ConfigError
from lumen.shell.paddle_shim import paddle

_LARGEST = 2**32 - 1  # numpy's global generator takes no larger seed


def seed_everything(seed: int) -> int:
    """Seeds Paddle, numpy and Python; call it before the module is made, so that its weights are the same each time.

    A fit without `Trainer(seed=...)` draws its own seed from numpy's generator, so this decides the order of the
    samples and the randomness of the training too.

    Args:
        seed: From 0 to 2**32 - 1.

    Returns:
        The seed.

    Raises:
        ConfigError: The seed is no int in that range.

    Example:
        >>> seed_everything(7)
        7
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST:
        raise ConfigError("seed_everything(seed)", got=seed, allowed=f"an int from 0 to {_LARGEST}")
    paddle.seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    return seed


def draw_seed() -> int:
    """A seed for a run, drawn from numpy's global generator, which Paddle's own samplers use too."""
    return int(np.random.randint(0, 2**31 - 1))
