"""Logger: what the Trainer asks of a place where values are written."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Logger(abc.ABC):
    """Base class of loggers: override `log_metrics`, and of the rest what the place can do.

    Only rank 0's trainer calls a logger, and only where values are read anyway: it may take its time for I/O. It may be
    called again after `finalize`, by the next run of the same Trainer.

    The order of a fit: on resume ``adopt, resume``; then ``log_hyperparams``, ``log_metrics`` many times, ``finalize``.

    Example:
        >>> class Printer(Logger):
        ...     def log_metrics(self, metrics, counters):
        ...         print(f"step {counters['step']}:", *(f"{k}={v:g}" for k, v in metrics.items()))
        >>> Printer().log_metrics({"loss": 0.5}, {"batch": 8, "step": 4, "epoch": 0, "samples": 256, "seconds": 1.5})
        step 4: loss=0.5
    """

    @property
    def name(self) -> str:
        """The experiment's name; default: the class's."""
        return type(self).__name__

    @property
    def version(self) -> int | str:
        """Which run of the experiment this is."""
        return 0

    @property
    def save_dir(self) -> str | None:
        """The folder below which files are written; None: this logger writes no files here."""
        return None

    @property
    def log_dir(self) -> str | None:
        """The folder of this run, where checkpoint callbacks put their files too; None where there is no `save_dir`.

        Reading it creates nothing.
        """
        if self.save_dir is None:
            return None
        version = self.version
        return str(Path(self.save_dir, self.name, version if isinstance(version, str) else f"version_{version}"))

    @abc.abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], counters: Mapping[str, int | float]) -> None:
        """Writes values.

        Args:
            metrics: Name to value; nan and inf are possible.
            counters: How far the run is: ``batch`` (batches of this rank), ``step`` (optimizer steps), ``epoch``
                (epochs finished), ``samples`` (over all ranks), ``seconds`` (of training).
        """

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Writes the module's hyper-parameters, as `save_hyperparameters` collected them."""

    def adopt(self, ckpt_path: str) -> None:
        """A run goes on from this checkpoint: write where the run that made it has written, if that can be told."""

    def resume(self, step: int) -> None:
        """Cuts the records with more than `step` optimizer steps; what is logged from now on comes after the others."""

    def save(self) -> None:
        """Brings to safety what is still held in memory."""

    def finalize(self, status: str) -> None:
        """The run is over; `status` is "success" or "failed"."""
