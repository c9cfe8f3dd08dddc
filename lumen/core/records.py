"""Records: the states of a run as versioned plain data."""

from __future__ import annotations

import enum
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import attrs

from lumen.core.orders.bucketed import Cut
from lumen.core.policy import StopReason
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import Request
from lumen.core.world import World
from lumen.errors import CheckpointError

VERSION = 2
"""Of the records; a change of a type's fields needs a new one, and a way to read the old."""

_LATER = {1: {"signal"}}  # fields that records of an old version have not: they get their defaults

T = TypeVar("T")
_TYPES: dict[str, type] = {kind.__name__: kind for kind in (Progress, TrainState, Request, World, Cut)}
_ENUMS: dict[str, type[enum.Enum]] = {"StopReason": StopReason}


def to_record(value: Any) -> dict[str, Any]:
    """A state as plain data: JSON types only.

    Args:
        value: A Progress, TrainState, Request, World or Cut.

    Raises:
        CheckpointError: It is none of these.

    Example:
        >>> to_record(World.single())["fields"]["size"]
        1
    """
    kind = type(value).__name__
    if _TYPES.get(kind) is not type(value):
        raise CheckpointError(f"a record of {kind}", allowed=", ".join(_TYPES))
    return {
        "type": kind,
        "version": VERSION,
        "fields": {
            f.name: _plain(getattr(value, f.name)) for f in attrs.fields(cast("type[attrs.AttrsInstance]", type(value)))
        },
    }


def _fields(kind: type) -> list[str]:
    return [field.name for field in attrs.fields(cast("type[attrs.AttrsInstance]", kind))]


def _plain(value: Any) -> Any:
    if type(value).__name__ in _TYPES:
        return to_record(value)
    return {"enum": type(value).__name__, "value": value.value} if isinstance(value, enum.Enum) else value


def from_record(record: Mapping[str, Any], kind: type[T]) -> T:
    """The state that `to_record` wrote.

    Args:
        record: Plain data, from a file: everything in it is checked.
        kind: What it must be.

    Raises:
        CheckpointError: It is another type's, of another version, or its fields are not those of the type.

    Example:
        >>> from_record(to_record(World.single()), World) == World.single()
        True
    """
    name = kind.__name__
    if not isinstance(record, Mapping) or record.get("type") != name:
        raise CheckpointError(f"a record of {name}", got=record.get("type") if isinstance(record, Mapping) else record)
    version = record.get("version")
    if version != VERSION and version not in _LATER:
        raise CheckpointError(
            f"a record of {name}",
            got=f"version {version}",
            allowed=f"version {VERSION}",
            do="Read it with the lumen that wrote it.",
        )
    fields = record.get("fields")
    known = set(_fields(kind))
    if isinstance(fields, Mapping):
        known -= (_LATER.get(version, set()) if isinstance(version, int) else set()) - set(fields)
    if not isinstance(fields, Mapping) or set(fields) != known:
        wrong = sorted(known.symmetric_difference(fields if isinstance(fields, Mapping) else ()))
        raise CheckpointError(
            f"a record of {name}", got=f"missing or unknown: {', '.join(wrong)}", allowed=", ".join(sorted(known))
        )
    hints = typing.get_type_hints(kind)
    return kind(**{key: _value(fields[key], hints[key], f"{name}.{key}") for key in fields})


def _value(value: Any, hint: Any, where: str) -> Any:
    """A field's value; its type must be one that the field is declared with."""
    if isinstance(value, Mapping) and "enum" in value:
        found = _ENUMS.get(str(value["enum"]))
        if found is None or value.get("value") not in [member.value for member in found]:
            raise CheckpointError(where, got=dict(value))
        return found(value["value"])
    if isinstance(value, Mapping):
        kind = _TYPES.get(str(value.get("type")))
        if kind is None:
            raise CheckpointError(where, got=value.get("type"), allowed=", ".join(_TYPES))
        return from_record(value, kind)
    others = [one for one in typing.get_args(hint) if one is not type(None)]
    if value is not None and len(others) == 1:  # it may be None, and is not
        hint = others[0]
    simple = {int: (int,), float: (int, float), bool: (bool,), str: (str,)}.get(hint)
    if simple is not None and (not isinstance(value, simple) or (isinstance(value, bool) and hint is not bool)):
        raise CheckpointError(where, got=value, allowed=hint.__name__)
    if simple is None and value is not None:
        raise CheckpointError(where, got=value)
    return value
