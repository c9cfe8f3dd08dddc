"""Loggers: where the values of a run are written."""

from __future__ import annotations

from typing import Any

_NAMES = ("CSVLogger", "Logger")


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        import lumen

        return getattr(lumen, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
