"""Logbook: the values of `self.log`, kept on the device until a plan says that they are read."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from lumen.core.metrics import Reduce, Table, Total, merge, merge_tables, result, total
from lumen.core.progress import COUNTERS
from lumen.errors import ConfigError, did_you_mean
from lumen.loop.runtime import Runtime

_FOLD = 512  # values of one name held before they are summed on the device: bounds memory at a launch per 512 batches


class Scope(enum.Enum):
    """Where the run stands, which decides the defaults of `self.log`."""

    CLOSED = "closed"
    TRAIN_BATCH = "train_batch"
    TRAIN_EPOCH = "train_epoch"
    EVAL = "eval"


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError("self.log(name)", got=name, allowed="a non-empty str")
    if name in COUNTERS:
        raise ConfigError(
            f"self.log({name!r})", got="the name of a counter", do="Every record has it already: use another name."
        )


class _Entry:
    """One logged name: how it was declared, and the values not yet read."""

    __slots__ = (
        "declared",
        "folded",
        "logger",
        "on_epoch",
        "on_step",
        "prog_bar",
        "reduce",
        "step",
        "values",
        "weights",
    )

    def __init__(self, declared: tuple[Any, ...], scope: Scope, batch_scope: bool) -> None:
        on_step, on_epoch, self.reduce, self.prog_bar, self.logger = declared
        self.declared = declared
        self.on_step: bool = (scope is Scope.TRAIN_BATCH) if on_step is None else on_step
        self.on_epoch: bool = (not batch_scope) if on_epoch is None else on_epoch
        self.step: list[tuple[Any, float]] = []
        self.values: list[Any] = []
        self.weights: list[float] = []
        self.folded: Total | None = None

    def forget(self) -> None:
        """Drops the values."""
        self.step.clear()
        self.values.clear()
        self.weights.clear()
        self.folded = None


class Logbook:
    """The logged values of one run on one rank.

    Args:
        runtime: Reads and joins device values.
        weighted: Whether a step's value is made of several batches or ranks, so that their sizes count.

    Attributes:
        scope: Where the run stands.
        callback: Latest merged values, equal on all ranks.
        logged: The values last written to the loggers.
        evaluated: All values of the last evaluation.
        begun: Batches begun so far, of whatever loop.
    """

    def __init__(self, runtime: Runtime, *, weighted: bool = True) -> None:
        self._runtime = runtime
        self._hold = runtime.held
        self._weighted = weighted
        self.scope = Scope.CLOSED
        self.callback: dict[str, float] = {}
        self.logged: dict[str, float] = {}
        self.evaluated: dict[str, float] = {}
        self._train: dict[str, _Entry] = {}
        self._eval: dict[str, _Entry] = {}
        self._batch: Any = None
        self.begun = 0
        self._suffix = ""
        self._idle = True
        self._window = 1
        self._carried: Table = {}
        self._shown: dict[str, None] = {}  # names to show, also between epochs

    # -- what the loops tell ----------------------------------------------------------------------------------------

    def begin_batch(self, batch: Any, opens_window: bool = False, suffix: str = "") -> None:  # noqa: FBT002 - called on each step
        """A new batch: what its values are weighted by, and whether the step values of the window before are over."""
        self._batch = batch
        self.begun += 1
        self._idle = False
        self._suffix = suffix
        self._window = 1 if opens_window else self._window + 1

    def begin_epoch(self) -> None:
        """A new training epoch: its values start from nothing; what is known of the names stays."""
        for entry in self._train.values():
            entry.forget()
        self._carried.clear()

    def begin_eval(self) -> None:
        """A new evaluation."""
        self._eval.clear()
        self._idle = True
        self.scope = Scope.EVAL

    # -- what the user tells ----------------------------------------------------------------------------------------

    def log(
        self,
        name: str,
        value: Any,
        *,
        prog_bar: bool = False,
        logger: bool = True,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str = "mean",
        batch_size: int | None = None,
    ) -> None:
        """Takes a value; see `lumen.Module.log`."""
        scope = self.scope
        if scope is Scope.EVAL:
            entries, name = self._eval, name + self._suffix
        else:
            entries = self._train
        declared = (on_step, on_epoch, reduce_fx, prog_bar, logger)
        entry = entries.get(name)
        if entry is None or entry.declared != declared:
            entry = entries[name] = self._declare(name, value, declared, entry)
        held = self._hold(value)
        if entry.on_step:
            if self._window == 1:
                entry.step.clear()
            # where one batch of one rank makes the value, its weight cancels: finding it costs a microsecond
            entry.step.append((held, self._weight(batch_size) if self._weighted else 1.0))
        if entry.on_epoch:
            entry.values.append(held)
            entry.weights.append(self._weight(batch_size))
            if len(entry.values) >= _FOLD:
                self._fold(entry)

    def _weight(self, batch_size: int | None) -> float:
        if batch_size is not None:
            return float(batch_size)
        return float(self._runtime.batch_size(self._batch)) if self._batch is not None else 1.0

    def _declare(self, name: str, value: Any, declared: tuple[Any, ...], known: _Entry | None) -> _Entry:
        on_step, on_epoch, reduce_fx, prog_bar, logger = declared
        if self.scope is Scope.CLOSED:
            raise ConfigError(
                f"self.log({name!r})",
                got="a call outside of training, validation and testing",
                allowed="training_step, validation_step, test_step and the hooks around them",
            )
        _check_name(name)
        if on_step and self.scope is not Scope.TRAIN_BATCH:
            raise ConfigError(
                f"self.log({name!r}, on_step=True)",
                got=f"a call in {self.scope.value}",
                allowed="training batches only",
                do="Log with on_epoch=True, the default here: one number over all batches.",
            )
        if reduce_fx not in [r.value for r in Reduce]:
            raise ConfigError(
                f"self.log({name!r}, reduce_fx)",
                got=reduce_fx,
                allowed="mean, sum, min or max",
                do=did_you_mean(str(reduce_fx), [r.value for r in Reduce]),
            )
        if known is not None:
            raise ConfigError(
                f"self.log({name!r})",
                got="other arguments than at its first call",
                allowed="the same arguments for one name",
                do="Use another name.",
            )
        self._runtime.check_scalar(name, value)
        of = Reduce(reduce_fx)
        entry = _Entry((on_step, on_epoch, of, prog_bar, logger), self.scope, self.scope is Scope.TRAIN_BATCH)
        entry.declared = declared
        if prog_bar:
            self._shown[name] = None
        carried = self._carried.pop(name, None)
        entry.folded = carried if carried is not None and carried.reduce is of else None
        return entry

    # -- reading ----------------------------------------------------------------------------------------------------

    def step_table(self) -> Table:
        """This rank's step values of the window that closed; one host read."""
        return self._read({n: (e.reduce, [v for v, _ in e.step], [w for _, w in e.step]) for n, e in self._steps()})

    def _steps(self) -> list[tuple[str, _Entry]]:
        return [(name, entry) for name, entry in self._train.items() if entry.on_step and entry.step]

    def merge_steps(self, tables: list[Table]) -> dict[str, float]:
        """The step values over all ranks: known to callbacks from now on; those for the loggers are returned."""
        record: dict[str, float] = {}
        for name, of in merge_tables(tables).items():
            value = result(of)
            entry = self._train[name]
            self.callback[name] = value
            shown = f"{name}_step" if entry.on_epoch else name
            self.callback[shown] = value
            if entry.logger:
                record[shown] = value
        return record

    def close(self, *, evaluation: bool) -> dict[str, float]:
        """The epoch values over all ranks: one host read and one collective.

        Returns:
            The values for the loggers; the callbacks' are in `callback` from now on.
        """
        entries = self._eval if evaluation else self._train
        idle = evaluation and self._idle
        gathered = self._runtime.gather(
            "evaluation" if evaluation else "epoch values", (idle, self.epoch_table(entries))
        )
        merged = merge_tables([table for _, table in gathered], idle=[idle for idle, _ in gathered])
        record: dict[str, float] = {}
        if evaluation:
            self.evaluated = {name: result(of) for name, of in merged.items()}
        for name, of in merged.items():
            value = result(of)
            entry = entries.get(name)
            both = entry is not None and entry.on_step
            self.callback[name] = value
            if both:
                self.callback[f"{name}_epoch"] = value
            if entry is None or entry.logger:
                record[f"{name}_epoch" if both else name] = value
        return record

    def epoch_table(self, entries: Mapping[str, _Entry] | None = None) -> Table:
        """This rank's epoch values so far; one host read."""
        chosen = self._train if entries is None else entries
        parts = {
            name: (e.reduce, e.values, e.weights) for name, e in chosen.items() if e.on_epoch and (e.values or e.folded)
        }
        table = self._read(parts)
        for name in parts:
            folded = chosen[name].folded
            if folded is not None:
                table[name] = merge(folded, table[name])
        for name, of in self._carried.items() if chosen is self._train else ():
            table.setdefault(name, of)
        return table

    def carry(self, table: Table) -> None:
        """Epoch values of a run that this one goes on from."""
        self._carried = dict(table)

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the values to show."""
        return tuple(self._shown)

    def show(self, names: Iterable[str]) -> None:
        """Shows values by these names: those of a run that ended in other processes."""
        self._shown = dict.fromkeys(names)

    def progress_bar(self) -> dict[str, float]:
        """The values to show: step values of this rank as they are now, epoch values as last merged; a host read."""
        steps = {name: entry for name, entry in self._steps() if entry.prog_bar}
        table = self._read({n: (e.reduce, [v for v, _ in e.step], [w for _, w in e.step]) for n, e in steps.items()})
        known = {**self.callback, **{name: result(of) for name, of in table.items()}}
        return {name: known[name] for name in self._shown if name in known}

    def _read(self, parts: Mapping[str, tuple[Reduce, list[Any], list[float]]]) -> Table:
        numbers = iter(self._runtime.read([value for _, values, _ in parts.values() for value in values]))
        return {
            name: total(reduce, [next(numbers) for _ in values], weights)
            for name, (reduce, values, weights) in parts.items()
        }

    def _fold(self, entry: _Entry) -> None:
        """Joins many held values into one number on the device, so that memory stays bounded without a host read."""
        value = self._runtime.fold(entry.reduce, entry.values, entry.weights)
        weight = sum(entry.weights)
        # the joined value stands for all of them: a mean is held as a mean, weighted by all the weights
        entry.values[:], entry.weights[:] = [value], [weight]
