"""A file of rows that grows, of which a crash can tear only the last line."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any


class Table:
    """The rows of a file, read one at a time.

    Args:
        path: The file; it must exist.

    Attributes:
        columns: The names in its first line; empty for an empty file.
        torn: Whether the last line has no end; it is not read.
        damaged: Rows with too few or too many cells that `rows` has left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged = 0
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            self.torn = size > 0 and file.read(1) != b"\n"
        with contextlib.closing(self._cells()) as cells:
            self.columns: list[str] = next(cells, [])

    def rows(self) -> Iterator[dict[str, str]]:
        """The whole rows."""
        for index, cells in enumerate(self._cells()):
            if index and len(cells) == len(self.columns):
                yield dict(zip(self.columns, cells, strict=True))
            else:
                self.damaged += index > 0

    def _cells(self) -> Generator[list[str], None, None]:
        with self._path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            # a line is written as a whole, so only one without an end can be torn; a disk that lost power leaves zeros
            yield from csv.reader(line.replace("\0", "") for line in file if line.endswith("\n"))


def write_rows(path: Path, columns: list[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Writes a file of rows in place of the one that is there; cells that a row lacks are empty."""

    def write(file: IO[str]) -> None:
        file.write(_line(columns) if columns else "")
        for row in rows:
            file.write(_line(row.get(name, "") for name in columns))

    replace(path, write)


def append_row(path: Path, columns: Iterable[str], row: Mapping[str, str]) -> None:
    """Adds a row, in one write.

    Raises:
        OSError: It could not be written as a whole.
    """
    data = _line(row.get(name, "") for name in columns).encode("utf-8", "backslashreplace")
    with path.open("ab", buffering=0) as file:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace(path: Path, write: Callable[[IO[str]], Any]) -> None:
    """Writes a text file beside, and puts it in the old one's place once it is on the disk.

    Args:
        path: The file.
        write: Writes the text.
    """
    beside = path.with_name(f"{path.name}.tmp")
    try:
        with beside.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
