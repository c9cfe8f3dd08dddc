"""Data: orders of samples, and datasets and loaders that know them.

Names are loaded when they are first used: the orders need no paddle.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumen.core.combining import CombinedLoader as CombinedLoader
    from lumen.core.orders.balanced import ClassBalanced as ClassBalanced
    from lumen.core.orders.base import Order as Order
    from lumen.core.orders.base import Sequential as Sequential
    from lumen.core.orders.base import Shuffled as Shuffled
    from lumen.core.orders.bucketed import Bucketed as Bucketed
    from lumen.core.orders.mixed import Concatenated as Concatenated
    from lumen.core.orders.mixed import Mixed as Mixed
    from lumen.core.orders.sorted import Sorted as Sorted
    from lumen.core.orders.subset import Fold as Fold
    from lumen.core.orders.subset import Subset as Subset
    from lumen.core.orders.weighted import Weighted as Weighted
    from lumen.data.arrays import ArrayDataset as ArrayDataset
    from lumen.data.loader import BatchSampler as BatchSampler
    from lumen.data.loader import DataLoader as DataLoader

_PLACES = {
    "CombinedLoader": "lumen.core.combining",
    "Order": "lumen.core.orders.base",
    "Sequential": "lumen.core.orders.base",
    "Shuffled": "lumen.core.orders.base",
    "Bucketed": "lumen.core.orders.bucketed",
    "ClassBalanced": "lumen.core.orders.balanced",
    "Concatenated": "lumen.core.orders.mixed",
    "Mixed": "lumen.core.orders.mixed",
    "Sorted": "lumen.core.orders.sorted",
    "Fold": "lumen.core.orders.subset",
    "Subset": "lumen.core.orders.subset",
    "Weighted": "lumen.core.orders.weighted",
    "ArrayDataset": "lumen.data.arrays",
    "BatchSampler": "lumen.data.loader",
    "DataLoader": "lumen.data.loader",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    from lumen.errors import did_you_mean

    raise AttributeError(f"module 'lumen.data' has no attribute {name!r}. {did_you_mean(name, _PLACES)}")


def __dir__() -> list[str]:
    return sorted(_PLACES)
