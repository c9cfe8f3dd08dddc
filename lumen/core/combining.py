"""Several training loaders as one: how their batches are put together."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from lumen.errors import ConfigError, did_you_mean


class Mode(enum.Enum):
    """How several loaders make an epoch.

    MIN_SIZE: a batch of each in every step, until the first of them ends.
    MAX_SIZE_CYCLE: a batch of each in every step, until the last of them ends; shorter ones start again.
    SEQUENTIAL: one loader after the other, a batch of one in every step.
    """

    MIN_SIZE = "min_size"
    MAX_SIZE_CYCLE = "max_size_cycle"
    SEQUENTIAL = "sequential"


def _mode(given: Any) -> Mode:
    names = [mode.value for mode in Mode]
    if isinstance(given, Mode):
        return given
    if given not in names:
        raise ConfigError("CombinedLoader(mode)", got=given, do=did_you_mean(str(given), names))
    return Mode(given)


def _loaders(given: Any) -> dict[str, Any] | tuple[Any, ...]:
    if isinstance(given, Mapping) and given:
        return dict(given)
    if isinstance(given, Sequence) and not isinstance(given, str) and given:
        return tuple(given)
    raise ConfigError("CombinedLoader(loaders)", got=given, allowed="a dict or a list with at least one loader")


@attrs.frozen
class CombinedLoader:
    """Several loaders as one.

    A batch is a dict or a list with a batch of each loader, as the loaders were given; with "sequential" it is one
    loader's own batch. `fit` makes one of a dict or a list of loaders, with the mode "max_size_cycle"; in evaluation
    loaders come one after the other.

    Args:
        loaders: A dict or a list of loaders.
        mode: "min_size", "max_size_cycle" or "sequential"; see `Mode`.

    Raises:
        ConfigError: There is no loader, or no such mode.

    Example:
        >>> CombinedLoader({"a": [1, 2], "b": [3]}, "min_size").mode
        <Mode.MIN_SIZE: 'min_size'>
    """

    loaders: dict[str, Any] | tuple[Any, ...] = attrs.field(converter=_loaders)
    mode: Mode = attrs.field(default=Mode.MAX_SIZE_CYCLE, converter=_mode)

    @property
    def names(self) -> list[str]:
        """What errors call each loader: its key, or its number."""
        return [str(key) for key in (self.loaders if isinstance(self.loaders, dict) else range(len(self.loaders)))]

    @property
    def each(self) -> list[Any]:
        """The loaders."""
        return list(self.loaders.values() if isinstance(self.loaders, dict) else self.loaders)

    def join(self, batches: Sequence[Any]) -> Any:
        """A batch of each loader, nested as the loaders are.

        Args:
            batches: In the loaders' order.
        """
        return dict(zip(self.loaders, batches, strict=True)) if isinstance(self.loaders, dict) else list(batches)


def epoch_length(mode: Mode, lengths: Sequence[int | None], done: Sequence[bool]) -> int | None:
    """Batches that are left of an epoch over several loaders; None: not known.

    Args:
        mode: How they are put together.
        lengths: Batches left of each loader's present pass; None: not known.
        done: Whether each has been seen whole already.

    Example:
        >>> epoch_length(Mode.MAX_SIZE_CYCLE, [3, 5], [False, False])
        5
    """
    counts = [0 if over and mode is not Mode.MIN_SIZE else length for length, over in zip(lengths, done, strict=True)]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    if mode is Mode.SEQUENTIAL:
        return sum(known)
    return min(known) if mode is Mode.MIN_SIZE else max(known)
