"""LambdaCallback: functions as hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumen.callbacks.base import HOOKS, Callback
from lumen.errors import ConfigError, did_you_mean


class LambdaCallback(Callback):
    """A callback made of functions.

    Args:
        **hooks: Hook name to function. A function takes what the hook of `Callback` takes, without ``self``: the
            trainer and the module first.

    Raises:
        ConfigError: A name is no hook, or a value cannot be called.

    Example:
        >>> epochs = []
        >>> callback = LambdaCallback(on_train_epoch_end=lambda trainer, module: epochs.append(trainer.current_epoch))
        >>> LambdaCallback(on_train_ends=print)
        Traceback (most recent call last):
        lumen.errors.ConfigError: LambdaCallback(on_train_ends=...): no hook has this name. Did you mean 'on_train_end'?
    """

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        for hook, function in hooks.items():
            argument = f"LambdaCallback({hook}=...)"
            if hook not in HOOKS:
                raise ConfigError(f"{argument}: no hook has this name", do=did_you_mean(hook, HOOKS))
            if not callable(function):
                raise ConfigError(argument, got=function, allowed="a function that takes (trainer, module, ...)")
            setattr(self, hook, function)
