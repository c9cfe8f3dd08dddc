"""CSVLogger: metrics in a file that any tool reads."""

from __future__ import annotations

import json
import math
import numbers
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lumen.core.progress import COUNTERS
from lumen.errors import ConfigError, LumenError
from lumen.loggers.base import Logger
from lumen.loggers.rows import Table, append_row, replace, write_rows

_VERSION = re.compile(r"version_(0|[1-9][0-9]*)")


class CSVLogger(Logger):
    """Writes ``<save_dir>/<name>/version_<N>/metrics.csv`` and ``hparams.json``.

    A row holds all counters (batch, step, epoch, samples, seconds), then the values; cells of what was not logged there
    are empty. Floats are written so that reading gives them back exactly; ``nan``, ``inf`` and ``-inf`` as such. A row
    is in the file when `log_metrics` returns. A name that is met for the first time becomes a column: the file is
    written anew beside and put in the old one's place.

    Nothing is created before something is logged. A run that is resumed goes on in the folder that its checkpoint lies
    in; rows past the resumed step are cut.

    Args:
        save_dir: Folder of all logs; ``~`` is expanded.
        name: Folder of this experiment in it; "" for none.
        version: Number of the run, >= 0, or the name of its folder. None: one more than the greatest number there is,
            chosen when it is first needed.

    Raises:
        ConfigError: A name or version that cannot be a folder.

    Example:
        >>> import tempfile
        >>> logger = CSVLogger(tempfile.mkdtemp())
        >>> logger.log_metrics({"loss": 0.5}, {"batch": 8, "step": 4, "epoch": 0, "samples": 256, "seconds": 1.5})
        >>> logger.version, logger.path.name
        (0, 'metrics.csv')
        >>> print(logger.path.read_text().rstrip())
        batch,step,epoch,samples,seconds,loss
        8,4,0,256,1.5,0.5
    """

    def __init__(
        self, save_dir: str | os.PathLike[str], name: str = "lumen_logs", version: int | str | None = None
    ) -> None:
        _check(save_dir, name, version)
        self._save_dir = Path.cwd() / Path(save_dir).expanduser()
        self._name = name
        self._version = version
        self._given = version is not None
        self._claimed = self._given
        self._columns: dict[str, None] | None = None  # None: not known, look into the file
        self._params: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._name

    @property
    def save_dir(self) -> str:
        """The folder of all logs, as an absolute path."""
        return str(self._save_dir)

    @property
    def version(self) -> int | str:
        """The run's number, or the name of its folder; chosen now if it was left open."""
        if self._version is None:
            self._version = self._next_version()
        return self._version

    @property
    def log_dir(self) -> str:
        """The folder of this run; not created by asking for it."""
        return str(super().log_dir)

    @property
    def path(self) -> Path:
        """The file with the metrics."""
        return Path(self.log_dir, "metrics.csv")

    def log_metrics(self, metrics: Mapping[str, float], counters: Mapping[str, int | float]) -> None:
        """Appends a row.

        Raises:
            ConfigError: A value is no number, a name is a counter's, or the folder cannot be written to.
            LumenError: The row could not be written, for want of space say.
        """
        row = _row(metrics, counters)
        path = self.path
        if self._columns is None or not path.exists():
            path = self._claim()
            self._columns = None
        try:
            columns = self._columns if self._columns is not None else _mended(path)
            if not row.keys() <= columns.keys():
                columns = _widened(path, row)
            self._columns = None  # where a write fails, part of the row may be there: look at the file's end first
            append_row(path, columns, row)
        except OSError as error:
            raise _failed(path, error) from error
        self._columns = columns

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Writes ``hparams.json``; names of earlier calls are kept. What JSON cannot hold is written as its `repr`."""
        self._params.update({str(name): _plain(value) for name, value in params.items()})
        text = json.dumps(self._params, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        target = self._claim().with_name("hparams.json")
        try:
            replace(target, lambda file: file.write(text))
        except OSError as error:
            raise _failed(target, error) from error

    def adopt(self, ckpt_path: str) -> None:
        """Goes on in the folder of this logger in which the checkpoint lies, unless the version was given."""
        if self._given:
            return
        experiment = Path(self._save_dir, self._name).resolve()
        for folder in Path(ckpt_path).resolve().parents:
            match = _VERSION.fullmatch(folder.name)
            if match is not None and folder.parent == experiment:
                self._version, self._claimed, self._columns = int(match[1]), True, None
                return

    def resume(self, step: int) -> None:
        """Keeps the rows up to this step, cuts the others, and a row that a crash has torn; no file: does nothing."""
        path = self.path
        self._columns = None
        if not path.exists():
            return
        self._claimed = True
        try:
            table = Table(path)
            write_rows(path, table.columns, (row for row in table.rows() if _step(row) <= step))
        except OSError as error:
            raise _failed(path, error) from error
        if table.damaged:
            warnings.warn(f"{path}: {table.damaged} unreadable rows were dropped.", stacklevel=2)

    def _next_version(self) -> int:
        folder = Path(self._save_dir, self._name)
        try:
            found = [_VERSION.fullmatch(entry.name) for entry in folder.iterdir()]
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _unwritable(folder, error) from error
        return 1 + max((int(match[1]) for match in found if match is not None), default=-1)

    def _claim(self) -> Path:
        """Makes the folder; where another run took the chosen number meanwhile, chooses the next."""
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(exist_ok=self._claimed)
            self._claimed = True
            return path
        except OSError as error:
            if self._claimed or not path.is_file():
                raise _unwritable(path.parent, error) from error
        self._version = None
        warnings.warn(f"{path.parent} was taken by another run: the log goes to {self.log_dir}.", stacklevel=3)
        return self._claim()


def _check(save_dir: Any, name: Any, version: Any) -> None:
    if not isinstance(save_dir, (str, os.PathLike)):
        raise ConfigError("CSVLogger(save_dir)", got=save_dir, allowed="the path of a folder")
    if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
        raise ConfigError("CSVLogger(name)", got=name, allowed='the name of a folder below save_dir, or ""')
    if version is None or (isinstance(version, int) and not isinstance(version, bool) and version >= 0):
        return
    if not isinstance(version, str) or version in ("", "..") or len(Path(version).parts) != 1 or "\0" in version:
        raise ConfigError("CSVLogger(version)", got=version, allowed="an int >= 0, the name of a folder, or None")


def _mended(path: Path) -> dict[str, None]:
    """The columns of the file as it is; a torn last line is cut."""
    table = Table(path)
    if table.torn:
        write_rows(path, table.columns, table.rows())
    return dict.fromkeys(table.columns)


def _widened(path: Path, names: Mapping[str, str]) -> dict[str, None]:
    """The columns of the file, once it has those names too: the counters first."""
    table = Table(path)
    columns = dict.fromkeys([*COUNTERS, *table.columns, *names])
    write_rows(path, list(columns), table.rows())
    return columns


def _row(metrics: Mapping[str, float], counters: Mapping[str, int | float]) -> dict[str, str]:
    row = {name: _cell(name, counters[name]) for name in COUNTERS if name in counters}
    for name, value in metrics.items():
        if name in COUNTERS:
            raise ConfigError(
                f"the logged name {name!r}",
                got="the name of a counter, which each row has as it is",
                do="Log it under another name.",
            )
        row[str(name)] = _cell(name, value)
    return row


def _cell(name: str, value: Any) -> str:
    """A number as a text that reads back as the same number."""
    if isinstance(value, numbers.Integral):
        return str(int(value))
    try:
        return repr(float(value - 0))  # a text has no `- 0`: it is refused, even if it could be read as a number
    except (TypeError, ValueError):
        raise ConfigError(f"the value logged as {name!r}", got=value, allowed="a number") from None


def _step(row: Mapping[str, str]) -> float:
    """The row's step; of a row that has none, as another tool may write it, 0: it is kept."""
    try:
        return float(row.get("step", ""))
    except ValueError:
        return 0.0


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(of) for of in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else repr(value)


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        "CSVLogger(save_dir)",
        got=f"{folder} ({error.strerror})",
        allowed="a folder that can be made and written to",
        do="Give another save_dir, or another default_root_dir to the Trainer.",
    )


def _failed(path: Path, error: OSError) -> LumenError:
    return LumenError(str(path), got=error.strerror, do="Make it writable or free some space; earlier rows are kept.")
