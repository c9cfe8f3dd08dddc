"""Fetching: samples to a batch, in this process or in workers."""

from __future__ import annotations

import gc
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from lumen.core.seeding import stream_key
from lumen.errors import DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.transfer import is_array, map_leaves

from paddle.io.dataloader.collate import default_collate_fn, default_convert_fn  # isort: skip  # after the shim

_KEPT = (
    "use_shared_memory",
    "timeout",
    "worker_init_fn",
    "prefetch_factor",
    "use_buffer_reader",
    "reader_buffer_size",
    "places",
)


_GRACE = 2.0  # seconds that a worker gets to end by itself


class Fetch:
    """Makes a batch of some samples, as the user's loader does, in the process that calls it.

    With `num_workers=0` Paddle's loader reads in a thread that shares the global generators with training, runs ahead,
    and hangs for ever when anything in it raises (all measured): so lumen reads by itself.

    Args:
        loader: The user's DataLoader.
        rank: The global rank, for notes and for the workers' randomness.
        seed: The run's seed.
        unbatched: Whether an item is given as it is, without a batch dimension.
    """

    def __init__(self, loader: Any, *, rank: int, seed: int, unbatched: bool) -> None:
        self.dataset = loader.dataset
        default = default_convert_fn if unbatched else default_collate_fn
        self.collate = loader.collate_fn if loader.collate_fn is not None else default
        self.rank = rank
        self.seed = seed
        self.unbatched = unbatched

    def __call__(self, indices: Sequence[int], epoch: int) -> Any:
        """The batch of these samples."""
        items = []
        for index in indices:
            try:
                items.append(self.dataset[int(index)])
            except Exception as error:
                note(error, f"lumen: dataset[{int(index)}], epoch {epoch}, rank {self.rank}{_worker()}")
                raise
        return self.collate(items[0] if self.unbatched else items)


def note(error: BaseException, text: str) -> None:
    """Adds a line to an error's traceback, where Python can (3.11 on)."""
    if sys.version_info >= (3, 11):
        error.add_note(text)


def _worker() -> str:
    info = paddle.io.get_worker_info()
    return f", worker {info.id}" if info is not None else ""


class _Failure:
    """An error of a worker, on its way to the main process."""

    def __init__(self, error: Exception) -> None:
        self.text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.error: Exception | None = error

    def __getstate__(self) -> dict[str, Any]:
        from multiprocessing import reduction  # what sends it

        try:
            reduction.ForkingPickler.dumps(self.error)
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
        self.indices: Iterator[Sequence[int]] = iter(())
        self.epoch = self.first = self.count = 0

    def __iter__(self) -> Iterator[list[tuple[int, int, list[int]]]]:
        for number, samples in enumerate(self.indices, start=self.first):
            yield [(self.epoch, number, [int(sample) for sample in samples])]

    def __len__(self) -> int:
        return self.count


class _Batches(paddle.io.Dataset):
    """A dataset whose items are whole batches; a worker gives an error back as an item."""

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self.fetch = fetch

    def __getitem__(self, ticket: tuple[int, int, list[int]]) -> Any:
        epoch, number, samples = ticket
        # by batch, not by worker: the same on a resume, whatever the number of workers
        key = stream_key(self.fetch.seed, epoch, self.fetch.rank, "worker", number)
        np.random.seed(key)
        random.seed(key)
        try:
            return _pack(self.fetch(samples, epoch))
        except Exception as error:  # noqa: BLE001 - it is raised in the main process
            return _pack(_Failure(error))

    def __len__(self) -> int:
        return len(self.fetch.dataset)


def _only(items: list[Any]) -> Any:
    """Collation of one ready batch."""
    return items[0]


@attrs.frozen
class _Slot:
    """Where an array stands in a batch whose arrays travel beside it."""

    index: int


@attrs.frozen
class _Nesting:
    """What the slots stand in, closed to Paddle, which would make lists of the sequences in it."""

    value: Any


def _pack(batch: Any) -> list[Any]:
    """A batch as Paddle sends it whole: its arrays, at least one, and behind them the nesting that they stand in.

    Paddle itself makes a list of a namedtuple and loses arrays in objects of attrs classes and dataclasses.
    """
    arrays: list[Any] = []

    def taken(leaf: Any) -> _Slot:
        arrays.append(leaf)
        return _Slot(len(arrays) - 1)

    nesting = map_leaves(batch, is_array, taken)
    return [*(arrays or [np.zeros(1, "float32")]), _Nesting(nesting)]


def _unpack(sent: list[Any]) -> Any:
    """The batch that `_pack` took apart."""
    *arrays, nesting = sent
    return map_leaves(nesting.value, lambda value: isinstance(value, _Slot), lambda slot: arrays[slot.index])


class WorkerPool:
    """The user's worker processes, reading the batches that lumen asks for.

    Args:
        loader: The user's DataLoader, whose settings are kept.
        fetch: Makes the batches.
    """

    def __init__(self, loader: Any, fetch: Fetch) -> None:
        self._tickets = _Tickets()
        settings = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
        self._loader = paddle.io.DataLoader(
            _Batches(fetch),
            batch_sampler=self._tickets,
            collate_fn=_only,
            num_workers=loader.num_workers,
            persistent_workers=loader._persistent_workers,
            return_list=True,
            **settings,
        )
        self._reading: Any = None

    def batches(self, indices: Iterator[Any], epoch: int, first: int, count: int | None) -> Iterator[Any]:
        """The batches of these samples.

        Args:
            indices: The samples of each batch.
            epoch: The epoch.
            first: Number of the first batch in the epoch.
            count: How many there are; None: not known.
        """
        tickets = self._tickets
        tickets.indices, tickets.epoch, tickets.first = indices, epoch, first
        tickets.count = count if count is not None else sys.maxsize
        state = np.random.get_state()
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
            for sent in reading:
                batch = _unpack(sent)
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
                    worker.terminate()
                    worker.join()
        self._loader._iterator = None  # else persistent workers that are gone would be asked again
