"""Workers: the user's worker processes, doing what lumen asks of them."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from multiprocessing import reduction
from typing import Any, Protocol

import numpy as np

from lumen.errors import DataError
from lumen.shell.fetching import note
from lumen.shell.packing import pack, unpack
from lumen.shell.paddle_shim import paddle
from lumen.shell.ranks.processes import remove_shared_memory, serve_parent

from paddle.io.dataloader import worker as paddle_worker  # isort: skip  # after the shim

_KEPT = (
    "use_shared_memory",
    "timeout",
    "worker_init_fn",
    "prefetch_factor",
    "use_buffer_reader",
    "reader_buffer_size",
    "places",
)


_LARGE = 100_000  # items or bytes beyond which a value is not compared by its contents
_GRACE = 2.0  # seconds that a worker gets to end by itself


class Work(Protocol):
    """What a worker does for each batch.

    Attributes:
        splits: Set in a worker: its start gave the dataset a part of its own.
    """

    splits: bool

    def in_worker(self, epoch: int, number: int, order: Any) -> Any:
        """Makes a batch, in a worker process.

        Args:
            epoch: The epoch.
            number: Of the batch in the epoch.
            order: What the batch is to be made of.
        """


class _Failure:
    """An error of a worker, on its way to the main process."""

    def __init__(self, error: Exception) -> None:
        self.text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.error: Exception | None = error

    def __getstate__(self) -> dict[str, Any]:
        try:
            reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(self.error))
        except Exception:  # noqa: BLE001 - whatever pickling a user's exception raises
            return {"text": self.text, "error": None}
        return {"text": self.text, "error": self.error}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.text, self.error = state["text"], state["error"]

    def throw(self) -> None:
        """Raises the worker's error, with the traceback that it had there as a note."""
        if self.error is None:
            raise DataError("a dataset in a worker", got="an error that cannot be sent", do=self.text)
        note(self.error, f"lumen: in a worker process:\n{self.text.rstrip()}")
        raise self.error


class _Tickets:
    """What Paddle takes for a batch sampler: it hands out one ticket a batch, and never raises."""

    def __init__(self) -> None:
        self.orders: Iterator[Any] = iter(())
        self.epoch = self.first = self.count = 0

    def __iter__(self) -> Iterator[list[tuple[int, int, Any]]]:
        for number, order in enumerate(self.orders, start=self.first):
            yield [(self.epoch, number, order)]

    def __len__(self) -> int:
        return self.count


class _Batches(paddle.io.Dataset):
    """A dataset whose items are whole batches; a worker gives an error back as an item."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        self.failed_start: _Failure | None = None

    def __getitem__(self, ticket: tuple[int, int, Any]) -> Any:
        if self.failed_start is not None:
            return pack(self.failed_start)
        try:
            return pack(self.work.in_worker(*ticket))
        except Exception as error:  # noqa: BLE001 - it is raised in the main process
            return pack(_Failure(error))


class _Start:
    """The start of a worker: it sees the user's dataset as its own, and runs the user's `worker_init_fn`.

    An error of that function comes with the first batch, since Paddle only says "killed". An iterable dataset that the
    function changed, or for which it looked which worker this is, gives each worker a part of its own.
    """

    def __init__(self, loader: Any, batches: _Batches) -> None:
        self.loader, self.batches = loader, batches
        self.parent, self.in_main = os.getpid(), True

    def __call__(self, number: int) -> None:
        serve_parent(self.parent, tied=self.in_main)
        dataset, start = self.loader.dataset, self.loader.worker_init_fn
        info = paddle_worker._worker_info
        vars(info)["dataset"] = dataset
        if start is None:
            return
        before = _attributes(dataset)
        try:
            start(number)
        except Exception as error:  # noqa: BLE001 - it is raised in the main process
            note(error, f"lumen: in worker_init_fn, worker {number}")
            self.batches.failed_start = _Failure(error)
        self.batches.work.splits = _attributes(dataset) != before


def _attributes(dataset: Any) -> dict[str, Any]:
    """What a dataset holds, to be compared; large values by their identity."""
    return {name: _digest(value) for name, value in vars(dataset).items()} if hasattr(dataset, "__dict__") else {}


def _digest(value: Any) -> Any:
    if getattr(value, "nbytes", 0) > _LARGE or (hasattr(value, "__len__") and len(value) > _LARGE):
        return id(value)
    try:
        return bytes(reduction.ForkingPickler.dumps(value))
    except Exception:  # noqa: BLE001 - whatever pickling a user's object raises
        return id(value)


def _only(items: list[Any]) -> Any:
    """Collation of one ready batch."""
    return items[0]


def open_pool(loader: Any, work: Work) -> WorkerPool | None:
    """The workers that the user's loader asks for; None for none.

    Args:
        loader: The user's DataLoader.
        work: What they do.
    """
    return WorkerPool(loader, work) if loader.num_workers else None


def _watched(reading: Any) -> Iterator[Any]:
    """What Paddle's loader gives; a worker that ended by itself is named, where Paddle says that a queue was killed."""
    while True:
        try:
            sent = next(reading)
        except StopIteration:
            return
        except SystemError as error:
            codes = {number: worker.exitcode for number, worker in enumerate(reading._workers) if worker.exitcode}
            if not codes:
                raise
            ends = [f"worker {number} {_ended(code)}" for number, code in codes.items()]
            raise DataError(
                "a DataLoader's workers",
                got=", ".join(ends),
                do="See what it printed; a worker that takes too much memory is killed by the system (signal 9).",
            ) from error
        yield sent


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class WorkerPool:
    """The user's worker processes, reading the batches that lumen asks for.

    Args:
        loader: The user's DataLoader, whose settings are kept.
        work: Makes the batches.
    """

    def __init__(self, loader: Any, work: Work) -> None:
        self._tickets = _Tickets()
        settings = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
        batches = _Batches(work)
        self._start = settings["worker_init_fn"] = _Start(loader, batches)
        self._loader = paddle.io.DataLoader(
            batches,
            batch_sampler=self._tickets,
            collate_fn=_only,
            num_workers=loader.num_workers,
            persistent_workers=loader._persistent_workers,
            return_list=True,
            **settings,
        )
        self._reading: Any = None

    def batches(self, orders: Iterator[Any], epoch: int, first: int, count: int | None) -> Iterator[Any]:
        """What the workers make of some orders, in their order.

        Args:
            orders: One for each batch: what `Work.in_worker` is given.
            epoch: The epoch.
            first: Number of the first batch in the epoch.
            count: How many there are; None: not known.
        """
        tickets = self._tickets
        tickets.orders, tickets.epoch, tickets.first = orders, epoch, first
        tickets.count = count if count is not None else sys.maxsize
        self._start.parent, self._start.in_main = os.getpid(), threading.current_thread() is threading.main_thread()
        state = np.random.get_state()
        if self._loader._iterator is not None:  # persistent workers: an epoch begins with the first of them again
            self._loader._iterator._workers_idx_cycle = itertools.cycle(range(self._loader.num_workers))
        # garbage of this process must not be collected in the workers: the destructor of a reader of Paddle's waits
        # there for a thread that the fork did not copy, for ever (seen on 3.3.1)
        gc.freeze()
        try:
            reading = self._reading = iter(self._loader)
        finally:
            gc.unfreeze()
            np.random.set_state(state)  # Paddle draws a seed for its workers: the run's own must not move by it
        finished = False
        try:
            for sent in _watched(reading):
                batch = unpack(sent)
                if isinstance(batch, _Failure):
                    batch.throw()
                yield batch
            finished = True
        finally:
            if not finished:  # what the workers have read ahead must not turn up in the next epoch
                self.close()

    def close(self) -> None:
        """Ends the workers."""
        reading, self._reading = self._reading, None
        if reading is not None and hasattr(reading, "_try_shutdown_all"):
            reading._try_shutdown_all(_GRACE)  # without a limit 2.6.2 was seen to wait for ever
            for worker in reading._workers:
                if worker.is_alive():
                    worker.kill()
                    worker.join()
                remove_shared_memory(worker.pid)  # batches that nobody took
        self._loader._iterator = None  # else persistent workers that are gone would be asked again
