"""The callbacks and loggers of a Trainer: what was given, checked and ordered, and the defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lumen.callbacks.base import Callback, overrides
from lumen.callbacks.model_checkpoint import ModelCheckpoint
from lumen.callbacks.progress_bar import ProgressBar
from lumen.core.arguments import Arguments
from lumen.errors import ConfigError
from lumen.loggers.base import Logger
from lumen.loggers.csv import CSVLogger
from lumen.trainer.replicas import ReplicaCheck


def make_loggers(given: bool | Logger | Sequence[Logger] | None, root: str) -> list[Logger]:
    """The loggers of a Trainer.

    Args:
        given: True for a `CSVLogger` below `root`, False or None for none, one, or several.
        root: The Trainer's folder.

    Raises:
        ConfigError: Something in it is not a Logger.
    """
    if given is True:
        return [CSVLogger(root)]
    if given is False or given is None:
        return []
    loggers: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    for logger in loggers:
        if not isinstance(logger, Logger):
            raise ConfigError("logger", got=logger, allowed="True, False, a lumen.Logger or a list of them")
    return loggers


def make_callbacks(
    given: Callback | Sequence[Callback] | None, arguments: Arguments, check_replicas: str | None
) -> list[Callback]:
    """The callbacks of a Trainer in the order in which they are called: the user's, those that write checkpoints last.

    Args:
        given: None, one, or several.
        arguments: Whether a progress bar and a checkpoint callback are wanted.
        check_replicas: How often ranks compare their weights; None: never.

    Raises:
        ConfigError: Something in it is not a Callback, or one contradicts an argument.
    """
    callbacks: list[Any] = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ConfigError(
                "callbacks",
                got=callback,
                allowed="a lumen.Callback or a list of them",
                do="Pass an object, not a class." if isinstance(callback, type) else "",
            )
    _check(callbacks, ProgressBar, "enable_progress_bar", arguments.enable_progress_bar)
    _check(callbacks, ModelCheckpoint, "enable_checkpointing", arguments.enable_checkpointing)
    if arguments.enable_progress_bar and not any(isinstance(c, ProgressBar) for c in callbacks):
        callbacks.append(ProgressBar())
    if arguments.enable_checkpointing and not any(isinstance(c, ModelCheckpoint) for c in callbacks):
        callbacks.append(ModelCheckpoint())
    if check_replicas is not None:
        callbacks.insert(0, ReplicaCheck(check_replicas))
    return sorted(callbacks, key=lambda callback: overrides(callback, "on_checkpoint"))


def keyed(callbacks: Sequence[Callback]) -> list[tuple[str, Callback]]:
    """Each callback with the name of its state in a checkpoint; of several with one key the later ones are numbered.

    Args:
        callbacks: In the order in which they are called.
    """
    counts: Counter[str] = Counter()
    named = []
    for callback in callbacks:
        key = callback.state_key
        counts[key] += 1
        named.append((key if counts[key] == 1 else f"{key}#{counts[key]}", callback))
    return named


def _check(callbacks: Sequence[Callback], kind: type[Callback], argument: str, enabled: bool) -> None:
    held = [callback for callback in callbacks if isinstance(callback, kind)]
    if held and not enabled:
        raise ConfigError(
            f"{argument}=False", got=f"a {kind.__name__} in callbacks", do=f"Remove it, or set {argument}=True."
        )
    if kind is ProgressBar and len(held) > 1:
        raise ConfigError("callbacks", got="several progress bars", allowed="one")


def checkpoint_folders(callbacks: Sequence[Callback], loggers: Sequence[Logger], root: str) -> list[str]:
    """Where checkpoints of earlier runs may lie: the callbacks' own folders, and those of all versions of the logs.

    Args:
        callbacks: The Trainer's callbacks.
        loggers: Its loggers.
        root: Its folder.
    """
    folders = [c.dirpath for c in callbacks if isinstance(c, ModelCheckpoint) and c.dirpath is not None]
    if any(isinstance(c, ModelCheckpoint) and c.dirpath is None for c in callbacks):
        folders += Path(root).glob("checkpoints*")
        for parent in {Path(logger.log_dir).parent for logger in loggers if logger.log_dir is not None}:
            folders += parent.glob("*/checkpoints*")
    return [str(folder) for folder in dict.fromkeys(folders)]
