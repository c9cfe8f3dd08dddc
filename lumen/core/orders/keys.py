"""Keys: the values that an order goes by, read from what the user gave and from the dataset."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import Given, Order, Values, is_bound
from lumen.errors import ConfigError, did_you_mean


def array_or_source(given: Given, name: str) -> Given:
    """An array of what the user gave, if it is one; a function or the name of a column as it is.

    Args:
        given: An array with one number for each sample, a function of a sample, or a column's name or number.
        name: The argument, for errors.

    Raises:
        ConfigError: It is none of these, or the array has another shape or values that are no numbers.
    """
    if callable(given) or (isinstance(given, (str, int)) and not isinstance(given, bool)):
        return given
    if given is None or isinstance(given, (bool, float, Mapping, set)):
        raise ConfigError(name, got="None" if given is None else given, allowed=_ALLOWED)
    return _checked(given, name)


_ALLOWED = "an array with one number for each sample, a function of a sample, or the name of a column of the dataset"


def _checked(values: Any, name: str) -> Values:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ConfigError(name, got=str(error), allowed=_ALLOWED) from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
        raise ConfigError(name, got=f"an array of {array.dtype} with shape {list(array.shape)}", allowed=_ALLOWED)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        wrong = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ConfigError(name, got=f"{array[wrong]} for sample {wrong}", allowed="finite numbers")
    array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)  # a copy: an order is a value
    array.flags.writeable = False
    return array


def read_values(given: Given, dataset: Any, name: str) -> Values:
    """The value of each sample.

    Args:
        given: As in `array_or_source`.
        dataset: With `__getitem__` and `__len__`; a column is asked of it as a whole where it offers `column(name)`.
        name: The argument, for errors.

    Raises:
        ConfigError: The dataset has no such column, or a value is no number and has no length.
    """
    if isinstance(given, np.ndarray):
        return given
    if dataset is None:
        raise ConfigError(name, got=given, allowed="an array", do="There is no dataset here to read it from.")
    if not callable(given) and hasattr(dataset, "column"):
        return _checked(_numbers(dataset.column(given), name), name)
    read = given if callable(given) else lambda sample: _column(sample, given, name)
    values = []
    for index in range(len(dataset)):
        try:
            values.append(read(dataset[index]))
        except ConfigError:
            raise
        except Exception as error:
            if sys.version_info >= (3, 11):
                error.add_note(f"lumen: {name} of dataset[{index}]")
            raise
    return _checked(_numbers(values, name), name)


def _column(sample: Any, column: Any, name: str) -> Any:
    if isinstance(sample, Mapping):
        if column not in sample:
            raise ConfigError(name, got=column, do=did_you_mean(str(column), map(str, sample)))
        return sample[column]
    if isinstance(column, str):
        if hasattr(sample, column):
            return getattr(sample, column)
        raise ConfigError(name, got=column, allowed=f"a field of a sample, which is a {type(sample).__name__}")
    try:
        return sample[column]
    except (IndexError, TypeError):
        size = f" of {len(sample)}" if hasattr(sample, "__len__") else ""
        raise ConfigError(
            name, got=column, allowed=f"a column of a sample, which is a {type(sample).__name__}{size}"
        ) from None


def _numbers(values: Any, name: str) -> Any:
    """Numbers as they are; of texts, lists and arrays their length."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
        return values
    return [_number(value, index, name) for index, value in enumerate(values)]


def _number(value: Any, index: int, name: str) -> Any:
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) == 0:
        return value.item()
    if hasattr(value, "__len__"):
        return len(value)
    if isinstance(value, (bool, int, float)):
        return value
    raise ConfigError(
        name, got=f"a {type(value).__name__} for sample {index}", allowed="a number, or something with a length"
    )


def given_field(name: str) -> Any:
    """An attrs field for what an order goes by.

    Args:
        name: How errors call it.
    """
    return attrs.field(converter=lambda given: array_or_source(given, name), eq=attrs.cmp_using(eq=np.array_equal))


def bind_values(order: Order, dataset: Any, name: str) -> Order:
    """An order with its values, and those of the orders in it, read from a dataset.

    Args:
        order: The order.
        dataset: Where from.
        name: The field that holds what the user gave.
    """
    order = Order.bind(order, dataset)
    given = getattr(order, name)
    if is_bound(given):
        return order
    return attrs.evolve(order, **{name: read_values(given, dataset, f"{type(order).__name__}({name})")})
