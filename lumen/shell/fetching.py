"""Fetching: samples to a batch, in the process that asks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lumen.core.permute import Integers
from lumen.core.seeding import stream_key
from lumen.shell.paddle_shim import paddle
from lumen.shell.rng import seed_worker
from lumen.shell.sources.base import BeforeFetch

from paddle.io.dataloader.collate import default_collate_fn, default_convert_fn  # isort: skip  # after the shim

if TYPE_CHECKING:
    from lumen.shell.workers import WorkerPool

Gather = Callable[[Integers], Any]


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
        self.collate = collate_of(loader, unbatched=unbatched)
        self.rank = rank
        self.seed = seed
        self.splits = False
        self.unbatched = unbatched
        gather = find_gather(self.dataset) if loader.collate_fn is None and not unbatched else None
        self._gather = gather
        self._several = bulk_method(self.dataset, "__getitems__") if gather is None and not unbatched else None

    @property
    def gathers(self) -> bool:
        """Whether a batch is one vectorised index, so that no worker need be started for it."""
        return self._gather is not None

    def __call__(self, indices: Any, epoch: int) -> Any:
        """The batch of these samples."""
        if self._gather is not None:
            return self._noted(self._gather, np.asarray(indices, dtype=np.int64), epoch)
        indices = indices.tolist() if isinstance(indices, np.ndarray) else indices
        if self._several is not None:
            return self.collate(self._noted(self._several, list(indices), epoch))
        items = []
        for index in indices:
            try:
                items.append(self.dataset[index])
            except Exception as error:
                note(error, f"lumen: dataset[{index!r}], epoch {epoch}, rank {self.rank}{worker_name()}")
                raise
        return self.collate(items[0] if self.unbatched else items)

    def _noted(self, read: Callable[[Any], Any], indices: Any, epoch: int) -> Any:
        try:
            return read(indices)
        except Exception as error:
            note(error, f"lumen: dataset{list(indices)}, epoch {epoch}, rank {self.rank}{worker_name()}")
            raise

    def in_worker(self, epoch: int, number: int, indices: Sequence[int]) -> Any:
        """The batch, made in a worker: its randomness is derived from the batch, not from the worker.

        So it is the same on a resume, whatever the number of workers.

        Args:
            epoch: The epoch.
            number: Of the batch in the epoch.
            indices: Its samples.
        """
        seed_worker(stream_key(self.seed, epoch, self.rank, "worker", number))
        return self(indices, epoch)


def collate_of(loader: Any, *, unbatched: bool) -> Callable[[Any], Any]:
    """What makes a batch of samples: the user's function, or Paddle's.

    Args:
        loader: The user's DataLoader.
        unbatched: Whether an item is given as it is.
    """
    default = default_convert_fn if unbatched else default_collate_fn
    return loader.collate_fn if loader.collate_fn is not None else default


def find_gather(dataset: Any) -> Gather | None:
    """How a dataset gives a whole batch by one index; None if it cannot.

    Args:
        dataset: A `lumen.data.ArrayDataset` or anything else with a method `gather(indices)`, a `TensorDataset`, or a
            `Subset` of one.
    """
    kind = type(dataset)
    if kind is paddle.io.TensorDataset:
        return lambda indices: rows_of(dataset.tensors, indices)
    if kind is paddle.io.Subset:
        inner = find_gather(dataset.dataset)
        if inner is None:
            return None
        places = np.asarray(dataset.indices, dtype=np.int64) % max(1, len(dataset.dataset))  # they may be negative
        return lambda indices: inner(places[indices])
    return bulk_method(dataset, "gather")


def bulk_method(dataset: Any, name: str) -> Callable[[Any], Any] | None:
    """The method by which a dataset gives several samples at once; None if it cannot, or one by one gives others.

    Args:
        dataset: A dataset.
        name: Of the method.
    """
    for base in type(dataset).__mro__:
        if name in vars(base):
            return getattr(dataset, name)
        if "__getitem__" in vars(base):  # a subclass that changes the samples must not be passed by
            return None
    return None


# what both Paddles can gather on a CPU; float16 neither can, bool, int8 and complex64 only 3.x
_GATHERED = (paddle.float32, paddle.float64, paddle.bfloat16, paddle.int64, paddle.int32, paddle.uint8)


def rows_of(arrays: Iterable[Any], indices: Integers) -> list[Any]:
    """Some rows of each of some arrays or tensors.

    Args:
        arrays: numpy arrays, memory-mapped files or tensors.
        indices: Which rows, int64, shape [k].
    """
    rows = []
    index = None  # made once: that takes 10 us
    for array in arrays:
        if not isinstance(array, paddle.Tensor):
            rows.append(np.asarray(array[indices]))
        elif array.dtype in _GATHERED:
            index = paddle.to_tensor(indices) if index is None else index
            rows.append(paddle.gather(array, index))
        else:
            rows.append(paddle.stack([array[int(number)] for number in indices]))
    return rows


def note(error: BaseException, text: str) -> None:
    """Adds a line to an error's traceback, where Python can (3.11 on)."""
    if sys.version_info >= (3, 11):
        error.add_note(text)


def worker_name() -> str:
    """What a note says of the process: `, worker 3`, or nothing outside of workers."""
    info = paddle.io.get_worker_info()
    return f", worker {info.id}" if info is not None else ""


def fetched(
    indices: Iterator[Any],
    fetch: Fetch,
    workers: WorkerPool | None,
    epoch: int,
    first: int,
    count: int | None,
    before_fetch: BeforeFetch,
) -> Iterator[Any]:
    """The batches of these samples; `before_fetch` is told of each before this process does anything for it.

    Args:
        indices: The samples of each batch.
        fetch: Makes a batch in this process.
        workers: Make them instead.
        epoch: The epoch.
        first: Number of the first batch in the epoch.
        count: How many there are; None: not known.
        before_fetch: Whom to tell; None: nobody.
    """
    tell = before_fetch if before_fetch is not None else _nobody
    if workers is not None:
        for number, batch in enumerate(workers.batches(indices, epoch, first, count), start=first):
            tell(number)
            yield batch
        return
    for number, samples in enumerate(indices, start=first):
        tell(number)
        yield fetch(samples, epoch)


def _nobody(batch: int) -> None:
    """Is told, and does nothing."""
