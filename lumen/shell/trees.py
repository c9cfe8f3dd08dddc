"""Trees of plain data and arrays, taken apart into JSON and named arrays, and put together again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from lumen.errors import CheckpointError, DataError
from lumen.shell.tensors import BFloat16

_SECTION = re.compile(r"[A-Za-z0-9_]+")
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_DEEPEST = 100


def split(sections: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray[Any, Any]]]]:
    """Sections as JSON data, in which arrays are named, and the arrays by section and name.

    Args:
        sections: Trees of dicts with text keys, lists, tuples (which become lists), numbers, texts, None, arrays and
            `BFloat16`.

    Raises:
        CheckpointError: Something else is in a tree; the error says where.

    Example:
        >>> split({"a": {"x": float("inf"), "y": (1, 2)}})
        ({'a': {'x': {'$float': 'inf'}, 'y': [1, 2]}}, {})
    """
    state: dict[str, Any] = {}
    arrays: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    for section, tree in sections.items():
        if _SECTION.fullmatch(section) is None:
            raise CheckpointError("a section's name", got=section, allowed="letters, digits and _")
        held: dict[str, np.ndarray[Any, Any]] = {}
        state[section] = _split(tree, section, "", held)
        if held:
            arrays[section] = held
    return state, arrays


def _split(value: Any, where: str, name: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, BFloat16):
        arrays[name or "value"] = value.bits
        return {"$bfloat16": name or "value"}
    if isinstance(value, np.generic):
        return _split(value.item(), where, name, arrays)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise CheckpointError(where, got=f"an array of type {value.dtype}", allowed="numbers")
        arrays[name or "value"] = np.asarray(value, order="C")
        return {"$array": name or "value"}
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str) or key.startswith("$")), None)
        if wrong is not None:
            raise CheckpointError(where, got=f"the key {wrong!r}", allowed="texts that do not start with $")
        return {
            key: _split(item, f"{where}.{key}", f"{name}/{key}" if name else key, arrays) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            _split(item, f"{where}[{i}]", f"{name}/{i}" if name else str(i), arrays) for i, item in enumerate(value)
        ]
    raise CheckpointError(
        where,
        got=f"a {type(value).__name__}",
        allowed="dicts, lists, numbers, texts, None and numpy arrays",
        do="Save what it is made of.",
    )


def join(state: Any, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The sections that `split` took apart.

    Args:
        state: JSON data, from a file: nothing in it is believed.
        arrays: Arrays by section and name.

    Raises:
        DataError: An array is missing, or the data is not of the form that `split` gives.
    """
    if not isinstance(state, dict):
        raise DataError("sections", got=type(state).__name__, allowed="a dict")
    return {section: _join(tree, section, arrays.get(section, {}), 0) for section, tree in state.items()}


def _join(value: Any, where: str, arrays: Mapping[str, Any], depth: int) -> Any:
    if depth > _DEEPEST:
        raise DataError(where[:80], got=f"more than {_DEEPEST} levels")
    if isinstance(value, list):
        return [_join(item, f"{where}[{i}]", arrays, depth + 1) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    special = next((key for key in value if key.startswith("$")), None)
    if special is None:
        return {key: _join(item, f"{where}.{key}", arrays, depth + 1) for key, item in value.items()}
    name = value[special]
    if special == "$float" and name in _SPECIAL and len(value) == 1:
        return _SPECIAL[name]
    if special in ("$array", "$bfloat16") and len(value) == 1 and isinstance(name, str) and name in arrays:
        return arrays[name] if special == "$array" else BFloat16(arrays[name])
    raise DataError(where, got=value, allowed="a number, or an array that is there")
