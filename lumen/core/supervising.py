"""Supervision: how the ranks of a job are watched over, as a value."""

from __future__ import annotations

from typing import Any

import attrs

from lumen.core.cadence import Every, Unit
from lumen.errors import ConfigError, did_you_mean

OUTPUTS = ("all", "errors", "none")


@attrs.frozen(kw_only=True)
class Supervision:
    """What is done about ranks that stand still or fail, and what is shown of them; see `lumen.Trainer`.

    Args:
        hang_timeout: Seconds without progress, > 0; a text such as "30 min"; None: as long as it takes.
        max_restarts: How often all ranks are started again, >= 0.
        rank_output: "all", "errors", "none", or a folder (a text or a path).

    Raises:
        ConfigError: A value is not allowed.

    Example:
        >>> Supervision(hang_timeout="30 min").hang_seconds
        1800.0
    """

    hang_timeout: float | str | None = "30 min"
    max_restarts: int = 0
    rank_output: Any = "all"

    def __attrs_post_init__(self) -> None:
        _ = self.hang_seconds
        restarts: Any = self.max_restarts
        if isinstance(restarts, bool) or not isinstance(restarts, int) or restarts < 0:
            raise ConfigError("max_restarts", got=restarts, allowed="an int >= 0")
        output = self.rank_output
        if not _is_path(output):
            raise ConfigError("rank_output", got=output, allowed="'all', 'errors', 'none' or a folder")
        if isinstance(output, str) and output not in OUTPUTS and "/" not in output:
            hint = did_you_mean(output.lower(), OUTPUTS)
            if "Did you mean" in hint:
                raise ConfigError("rank_output", got=output, do=f"{hint} A folder of that name is './{output}'.")

    @property
    def hang_seconds(self) -> float | None:
        """`hang_timeout` in seconds; None: no limit."""
        limit = self.hang_timeout
        if isinstance(limit, str):
            every = Every.parse(limit, argument="hang_timeout")
            if every.unit is not Unit.SECOND:
                raise ConfigError("hang_timeout", got=limit, allowed='a time, such as "90 s" or "30 min"')
            return float(every.n)
        if limit is None:
            return None
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < float("inf"):
            raise ConfigError("hang_timeout", got=limit, allowed='seconds > 0, a text such as "30 min", or None')
        return float(limit)

    @property
    def folder(self) -> str | None:
        """Where each rank's output goes; None: not to files."""
        return None if self.rank_output in OUTPUTS else str(self.rank_output)


def _is_path(value: Any) -> bool:
    return (isinstance(value, str) and value != "") or hasattr(value, "__fspath__")
