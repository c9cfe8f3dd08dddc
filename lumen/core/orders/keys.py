"""Keys: the values that an order goes by, read from what the user gave and from the dataset."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from lumen.core.orders.base import Given, Order, Values, is_bound
from lumen.core.permute import Integers
from lumen.errors import ConfigError, did_you_mean


class Meaning(enum.Enum):
    """What a value of a sample stands for, where it is not a plain number.

    SIZE: of a text, a list or an array its length counts.
    NUMBER: nothing but a number will do.
    LABEL: a text is a class of its own too.
    """

    SIZE = "a number, or something with a length"
    NUMBER = "a number"
    LABEL = "a whole number, or a text"


_ALLOWED = "an array with one value for each sample, a function of a sample, or the name of a column of the dataset"


def array_or_source(given: Given, name: str, meaning: Meaning = Meaning.NUMBER) -> Given:
    """An array of what the user gave, if it is one; a function or the name of a column as it is.

    Args:
        given: An array with one value for each sample, a function of a sample, or a column's name or number.
        name: The argument, for errors.
        meaning: What a value stands for.

    Raises:
        ConfigError: It is none of these, or the array has another shape or values that are no numbers.
    """
    if callable(given) or (isinstance(given, (str, int, np.integer)) and not isinstance(given, bool)):
        return given
    if given is None or isinstance(given, (bool, float, Mapping, set)):
        raise ConfigError(name, got="None" if given is None else given, allowed=_ALLOWED)
    return _checked(given, name, meaning)


def _checked(values: Any, name: str, meaning: Meaning) -> Values:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ConfigError(name, got=str(error), allowed=_ALLOWED) from None
    kinds = "biuf" + ("U" if meaning is Meaning.LABEL else "")
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise ConfigError(name, got=f"an array of {array.dtype} with shape {list(array.shape)}", allowed=_ALLOWED)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        wrong = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ConfigError(name, got=f"{array[wrong]} for sample {wrong}", allowed="finite numbers")
    if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise ConfigError(name, got=int(array.max()), allowed="numbers below 2**63")
    kind: Any = {"f": np.float64, "U": array.dtype}.get(array.dtype.kind, np.int64)
    array = array.astype(kind)  # a copy: an order is a value
    array.flags.writeable = False
    return array


class Picked:
    """Some samples of a dataset, as one.

    Args:
        dataset: The dataset.
        indices: Which of its samples, int64, shape [k].
    """

    def __init__(self, dataset: Any, indices: Integers) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]

    @property
    def column(self) -> Callable[[Any], Any]:
        """A column of these samples, where the dataset itself offers whole columns."""
        whole = self.dataset.column
        return lambda name: _rows(whole(name), self.indices)


def _rows(values: Any, indices: Integers) -> Any:
    return values[indices] if isinstance(values, np.ndarray) else [values[int(index)] for index in indices]


def number_in(dataset: Any, index: int) -> int:
    """What number a sample has in the dataset that the user made.

    Args:
        dataset: A dataset, or some samples of one.
        index: The sample's number in it.
    """
    while isinstance(dataset, Picked):
        index, dataset = int(dataset.indices[index]), dataset.dataset
    return index


def read_values(given: Given, dataset: Any, name: str, meaning: Meaning = Meaning.NUMBER) -> Values:
    """The value of each sample.

    Args:
        given: As in `array_or_source`.
        dataset: With `__getitem__` and `__len__`; a column is asked of it as a whole where it offers `column(name)`.
        name: The argument, for errors.
        meaning: What a value stands for.

    Raises:
        ConfigError: The dataset has no such column, or a value is not what it has to be.
    """
    if isinstance(given, np.ndarray):
        return given
    if dataset is None:
        raise ConfigError(name, got=given, allowed="an array", do="There is no dataset here to read it from.")
    if not callable(given) and hasattr(dataset, "column"):
        return _checked(_numbers(dataset.column(given), dataset, name, meaning), name, meaning)
    read = given if callable(given) else lambda sample: _column(sample, given, name)
    values = []
    for index in range(len(dataset)):
        try:
            values.append(read(dataset[index]))
        except ConfigError:
            raise
        except Exception as error:
            if sys.version_info >= (3, 11):
                error.add_note(f"lumen: {name} of dataset[{number_in(dataset, index)}]")
            raise
    return _checked(_numbers(values, dataset, name, meaning), name, meaning)


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


def _numbers(values: Any, dataset: Any, name: str, meaning: Meaning) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
        return values
    return [_number(value, number_in(dataset, index), name, meaning) for index, value in enumerate(values)]


def _number(value: Any, index: int, name: str, meaning: Meaning) -> Any:
    shape = getattr(value, "shape", None)
    if shape is not None and (len(shape) == 0 or (meaning is not Meaning.SIZE and tuple(shape) == (1,))):
        return value.item()
    if isinstance(value, (bool, int, float)) or (meaning is Meaning.LABEL and isinstance(value, str)):
        return value
    if meaning is Meaning.SIZE and hasattr(value, "__len__"):
        return len(value)
    raise ConfigError(name, got=f"a {type(value).__name__} for sample {index}", allowed=meaning.value)


def given_field(name: str, meaning: Meaning) -> Any:
    """An attrs field for what an order goes by.

    Args:
        name: How errors call it.
        meaning: What a value stands for.
    """
    return attrs.field(
        converter=lambda given: array_or_source(given, name, meaning), eq=attrs.cmp_using(eq=np.array_equal)
    )


def bind_values(order: Order, dataset: Any, name: str, meaning: Meaning) -> Order:
    """An order with its values, and those of the orders in it, read from a dataset.

    Args:
        order: The order.
        dataset: Where from.
        name: The field that holds what the user gave.
        meaning: What a value stands for.
    """
    order = Order.bind(order, dataset)
    given = getattr(order, name)
    if is_bound(given):
        return order
    return attrs.evolve(order, **{name: read_values(given, dataset, f"{type(order).__name__}({name})", meaning)})
