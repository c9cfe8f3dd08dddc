"""lumen: a callback trainer for PaddlePaddle on a pure-functional core.

Public names are loaded when they are first used, so that `import lumen` and `import lumen.core` need no paddle and
change nothing in the process.
"""

from __future__ import annotations

import importlib
import zlib as _zlib  # noqa: F401  Paddle 2.6.2 crashes Python's if it is loaded first: `import lumen` is often before it
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumen import data as data
    from lumen.callbacks.base import Callback as Callback
    from lumen.callbacks.early_stopping import EarlyStopping as EarlyStopping
    from lumen.callbacks.lambda_callback import LambdaCallback as LambdaCallback
    from lumen.callbacks.lr_monitor import LearningRateMonitor as LearningRateMonitor
    from lumen.callbacks.model_checkpoint import ModelCheckpoint as ModelCheckpoint
    from lumen.callbacks.progress_bar import ProgressBar as ProgressBar
    from lumen.core.strategy import FleetStrategy as FleetStrategy
    from lumen.datamodule import DataModule as DataModule
    from lumen.errors import CheckpointError as CheckpointError
    from lumen.errors import ConfigError as ConfigError
    from lumen.errors import ConnectError as ConnectError
    from lumen.errors import DataError as DataError
    from lumen.errors import LaunchError as LaunchError
    from lumen.errors import LumenError as LumenError
    from lumen.errors import MissingDependencyError as MissingDependencyError
    from lumen.errors import ModuleError as ModuleError
    from lumen.errors import RankError as RankError
    from lumen.errors import WorldError as WorldError
    from lumen.loggers.base import Logger as Logger
    from lumen.loggers.csv import CSVLogger as CSVLogger
    from lumen.module import Module as Module
    from lumen.seeding import seed_everything as seed_everything
    from lumen.trainer import Trainer as Trainer

__version__ = "0.1.0"

_PLACES = {
    "Callback": "lumen.callbacks.base",
    "EarlyStopping": "lumen.callbacks.early_stopping",
    "LambdaCallback": "lumen.callbacks.lambda_callback",
    "LearningRateMonitor": "lumen.callbacks.lr_monitor",
    "ModelCheckpoint": "lumen.callbacks.model_checkpoint",
    "ProgressBar": "lumen.callbacks.progress_bar",
    "FleetStrategy": "lumen.core.strategy",
    "DataModule": "lumen.datamodule",
    "CheckpointError": "lumen.errors",
    "ConfigError": "lumen.errors",
    "ConnectError": "lumen.errors",
    "DataError": "lumen.errors",
    "LaunchError": "lumen.errors",
    "LumenError": "lumen.errors",
    "MissingDependencyError": "lumen.errors",
    "ModuleError": "lumen.errors",
    "RankError": "lumen.errors",
    "WorldError": "lumen.errors",
    "Logger": "lumen.loggers.base",
    "CSVLogger": "lumen.loggers.csv",
    "Module": "lumen.module",
    "seed_everything": "lumen.seeding",
    "Trainer": "lumen.trainer",
}


def __getattr__(name: str) -> Any:
    if name == "data":
        return importlib.import_module("lumen.data")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    from lumen.errors import did_you_mean

    raise AttributeError(f"module 'lumen' has no attribute {name!r}. {did_you_mean(name, [*_PLACES, 'data'])}")


def __dir__() -> list[str]:
    return sorted([*_PLACES, "data", "__version__"])
