"""ArrayDataset: arrays whose rows are the samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumen.core.permute import Integers
from lumen.errors import DataError, did_you_mean
from lumen.shell.fetching import rows_of
from lumen.shell.paddle_shim import paddle


class ArrayDataset(paddle.io.Dataset):
    """Arrays whose rows are the samples; a whole batch of them is one vectorised index.

    lumen then starts no worker for it, whatever `num_workers` says. Nothing is copied: a memory-mapped file
    stays on disk.

    Args:
        arrays: numpy arrays, memory-mapped files or paddle tensors, all of the same length; a sample is a tuple.
        named: The same by name, instead; a sample is a dict.

    Raises:
        DataError: There is no array, their lengths differ, or some are named and some are not.

    Example:
        >>> dataset = ArrayDataset(np.arange(6).reshape(3, 2), np.array([0, 1, 0]))
        >>> len(dataset), dataset[1][0].tolist(), dataset.gather(np.array([0, 2]))[1].tolist()
        (3, [2, 3], [0, 0])
    """

    def __init__(self, *arrays: Any, **named: Any) -> None:
        super().__init__()
        if bool(arrays) == bool(named):
            got = "both" if arrays else "no array"
            raise DataError("ArrayDataset", got=got, do="Give arrays, or arrays by name.")
        self._columns: dict[Any, Any] = dict(enumerate(arrays)) if arrays else dict(named)
        self._named = bool(named)
        for name, array in self._columns.items():
            if not hasattr(array, "shape") or len(array.shape) == 0:
                raise DataError(
                    f"ArrayDataset[{name!r}]",
                    got=f"a {type(array).__name__}",
                    allowed="an array with rows, or a tensor",
                )
        lengths = {name: len(array) for name, array in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(
                "ArrayDataset",
                got=", ".join(f"{name!r} with {length} rows" for name, length in lengths.items()),
                allowed="arrays of one length",
            )
        self._length = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        """One sample."""
        if not -self._length <= index < self._length:
            raise IndexError(f"sample {index} of an ArrayDataset with {self._length}")
        return self._joined([array[index] for array in self._columns.values()])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Several samples, for a collate function of the user's."""
        columns = rows_of(self._columns.values(), np.asarray(indices, dtype=np.int64))
        return [self._joined([column[row] for column in columns]) for row in range(len(indices))]

    def gather(self, indices: Integers) -> Any:
        """A batch: what Paddle's collation makes of these samples.

        Args:
            indices: The samples, int64, shape [k].
        """
        rows = rows_of(self._columns.values(), indices)
        return dict(zip(self._columns, rows, strict=True)) if self._named else rows

    def column(self, name: int | str) -> Any:
        """One of the arrays as a whole, which an order may go by.

        Args:
            name: Its name or number.

        Raises:
            DataError: There is no such array.
        """
        if name not in self._columns:
            raise DataError(
                f"ArrayDataset.column({name!r})", got=name, do=did_you_mean(str(name), map(str, self._columns))
            )
        return np.asarray(self._columns[name])

    def _joined(self, values: list[Any]) -> Any:
        return dict(zip(self._columns, values, strict=True)) if self._named else tuple(values)
