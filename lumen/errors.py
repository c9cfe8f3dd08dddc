"""Every error that lumen raises on purpose: what was wrong, what was given, what is allowed, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LumenError(Exception):
    """Base of all of lumen's errors.

    Args:
        argument: What is wrong: the name of an argument, a variable, a file or a method.
        got: The value as the user gave it, shown by ``repr``; a text with spaces is a description, shown as it is.
        allowed: What would have been right, as a phrase ("an int >= 1").
        do: What to do about it, as a sentence.

    Example:
        >>> print(ConfigError("devices", got=0, allowed="an int >= 1 or -1", do="Use devices=1 for one process."))
        devices: got 0; allowed: an int >= 1 or -1. Use devices=1 for one process.
    """

    def __init__(self, argument: str, *, got: object = None, allowed: str = "", do: str = "") -> None:
        self.argument = argument
        self.got = got
        self.allowed = allowed
        self.do = do
        super().__init__(argument)

    def __str__(self) -> str:
        facts = []
        if isinstance(self.got, str) and " " in self.got:
            facts = [self.got]
        elif self.got is not None:
            facts = [f"got {'None' if self.got == 'None' else repr(self.got)}"]
        facts += [f"allowed: {self.allowed}"] if self.allowed else []
        head = f"{self.argument}: {'; '.join(facts)}" if facts else self.argument
        text = f"{head}. {self.do}".rstrip(" .")
        return head if not self.do else text if text.endswith(("?", "!")) else f"{text}."

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.argument, self.got, self.allowed, self.do)


def _rebuild(kind: type[LumenError], argument: str, got: object, allowed: str, do: str) -> LumenError:
    return kind(argument, got=got, allowed=allowed, do=do)


class ConfigError(LumenError, ValueError):
    """An argument, or a combination of arguments, that cannot be carried out."""


class ModuleError(LumenError, TypeError):
    """The user's Module lacks something that the run needs, or returned something that cannot be used."""


class DataError(LumenError, ValueError):
    """A loader or a dataset that cannot be trained or evaluated on."""


class WorldError(LumenError, RuntimeError):
    """The description of the ranks (environment variables, devices, process group) does not add up."""


class ConnectError(WorldError):
    """The ranks did not find each other."""


class RankError(LumenError, RuntimeError):
    """Another rank failed, ended or stands still, and this one cannot go on without it."""


class LaunchError(LumenError, RuntimeError):
    """The other ranks could not be started, or one of them ended badly."""


class CheckpointError(LumenError, RuntimeError):
    """A checkpoint that is missing, damaged, of another version, or of another model."""


class MissingDependencyError(LumenError, ImportError):
    """A package that this feature needs is not installed."""


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """The part of a message that helps with a misspelt name.

    Args:
        name: What the user typed.
        allowed: The names that exist.

    Returns:
        ``"Did you mean 'x'?"`` for the nearest name, else the list of all names.

    Example:
        >>> did_you_mean("max_epoch", ["max_epochs", "devices"])
        "Did you mean 'max_epochs'?"
        >>> did_you_mean("zzz", ["b", "a"])
        'Known: a, b.'
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6) or [
        known for known in names if known.startswith(name)
    ]
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."
