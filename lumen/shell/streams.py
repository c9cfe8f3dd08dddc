"""Streams: reading an iterable dataset for one rank, in the process that asks."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from lumen.core.sampling import Tail
from lumen.core.seeding import stream_key
from lumen.core.streaming import Chunk, deal_stream
from lumen.core.world import World
from lumen.errors import DataError
from lumen.shell.fetching import collate_of, note, worker_name
from lumen.shell.packing import Opaque
from lumen.shell.paddle_shim import paddle
from lumen.shell.rng import capture_host, host_isolated, restore_host, seed_host, seed_worker, seeded

from paddle.io.dataloader import worker as paddle_worker  # isort: skip  # after the shim

WHOLE = "all"
"""The name of the one stream of a dataset that does not split itself; else the workers' numbers are the names."""


@attrs.frozen
class Ended:
    """What a worker gives instead of a batch when its stream has ended.

    Args:
        stream: The name of the stream.
    """

    stream: str


class _WorkerInfo:
    """What `get_worker_info()` gives to a dataset while lumen reads it: it tells whether the dataset looked.

    A dataset that looks reads another part of the data in each worker. From then on its random numbers are its own;
    until then all workers see the same ones, so that a shuffle before the split is the same in all.
    """

    def __init__(self, number: int, count: int, dataset: Any, key: int) -> None:
        self.number, self._count, self._key = number, count, key
        self.dataset = dataset
        self.looked = False

    @property
    def id(self) -> int:
        self._look()
        return self.number

    @property
    def num_workers(self) -> int:
        self._look()
        return self._count

    def _look(self) -> None:
        if not self.looked:
            self.looked = True
            seed_host(self._key)


@contextlib.contextmanager
def _shown(info: _WorkerInfo | None) -> Iterator[None]:
    """Lets the dataset see this in place of Paddle's own worker info."""
    real = paddle_worker._worker_info
    paddle_worker._worker_info = info
    try:
        yield
    finally:
        paddle_worker._worker_info = real


class StreamReader:
    """Reads an iterable dataset and makes this rank's batches of it.

    All workers of all ranks read the same stream, and each takes its own batches, unless the dataset splits itself over
    workers (by `paddle.io.get_worker_info()`): then each worker has a stream of its own, of which the ranks take turns.

    Args:
        loader: The user's DataLoader.
        world: The ranks among whom the samples are dealt.
        rank: The global rank, for the workers' randomness.
        seed: The run's seed.
        tail: What happens to a last batch that is not full.
    """

    def __init__(self, loader: Any, world: World, *, rank: int, seed: int, tail: Tail) -> None:
        sampler = loader.batch_sampler
        self.unbatched = sampler is None
        self._dataset = loader.dataset
        self._collate = collate_of(loader, unbatched=self.unbatched)
        self._batch_size = 1 if sampler is None else int(sampler.batch_size)
        self._world, self._rank, self._seed, self._tail = world, rank, seed, tail
        self._stateful = is_stateful(loader.dataset)
        self.starts: dict[int, Mapping[str, Any]] = {}
        self._pass = -1
        self.splits = False
        self._read: Iterator[tuple[Chunk, dict[str, Any]]] = iter(())
        self._position = 0
        self._stream = WHOLE

    def in_process(self, epoch: int) -> Iterator[tuple[Any, int, Mapping[str, Any]]]:
        """This rank's batches, each with the samples of all ranks and the place that it leads to.

        Args:
            epoch: The epoch.
        """
        for chunk, place in self._chunks(epoch, None):
            if chunk.samples:
                with host_isolated():  # one batch is read ahead: the run's own random numbers must not move by it
                    batch = self._batch(chunk, epoch)
                yield batch, chunk.total, {WHOLE: place}

    def in_worker(self, epoch: int, number: int, order: tuple[int, int]) -> Any:  # noqa: ARG002 - a protocol's argument
        """One batch; see `lumen.shell.workers.Work`.

        Args:
            epoch: The epoch.
            number: Of the batch in the epoch.
            order: The number of the pass (an epoch may be read again), and of the batch in it; -1: none is wanted.
        """
        this_pass, wanted = order
        if wanted < 0:  # it only takes this worker's turn
            return Opaque(None)
        if self._pass != this_pass:
            self._pass, self._position = this_pass, -1
            info = paddle.io.get_worker_info()
            self._read = self._chunks(epoch, info)
        for chunk, place in self._read:
            self._position += 1
            # of a stream that all workers read, each takes the batches that it is asked for
            if self._stream != WHOLE or self._position == wanted:
                if not chunk.samples:
                    break
                return self._batch(chunk, epoch), chunk.total, Opaque({self._stream: place})
        return Opaque(Ended(self._stream))

    def _batch(self, chunk: Chunk, epoch: int) -> Any:
        # by its place, not by the worker or the number of batches before it: the same on a resume
        place = chunk.position, 0 if self._stream == WHOLE else int(self._stream) + 1
        seed_worker(stream_key(self._seed, epoch, self._rank, "worker", *place))
        return self._collate(chunk.samples[0] if self.unbatched else chunk.samples)

    def _chunks(self, epoch: int, real: Any) -> Iterator[tuple[Chunk, dict[str, Any]]]:
        key = stream_key(self._seed, epoch, 0, "worker")
        info = None
        if real is not None:
            number, count = int(real.id), int(real.num_workers)
            own = stream_key(self._seed, epoch, 0, "worker", number, count)
            info = _WorkerInfo(number, count, self._dataset, own)
            if self.splits:
                key = own
        start = self.starts.get(epoch, {})
        reading = seeded(self._dealt(epoch, info, start), key, device=real is None)
        while True:
            with _shown(info):
                try:
                    chunk, place = next(reading)
                except StopIteration:
                    return
            if info is not None and info.looked and self._stream == WHOLE:
                raise DataError(
                    f"{type(self._dataset).__name__}.__iter__",
                    got="a call of get_worker_info() after the first sample",
                    do="Call it before the first: whether the dataset splits itself must be known from then on.",
                )
            yield chunk, place

    def _dealt(
        self, epoch: int, info: _WorkerInfo | None, start: Mapping[str, Any]
    ) -> Iterator[tuple[Chunk, dict[str, Any]]]:
        name = WHOLE if info is None or WHOLE in start or not start else str(info.number)
        saved = start.get(name, {})
        position = int(saved.get("position", 0))
        if self._stateful and "dataset" in saved:
            self._dataset.load_state_dict(saved["dataset"])
            stream = self._noted(iter(self._dataset), position, epoch)
            restore_host(saved["generators"])
        else:
            stream = self._noted(iter(self._dataset), 0, epoch)
            next(itertools.islice(stream, position, position), None)
        first = next(stream, _NOTHING)
        self._stream = str(info.number) if info is not None and (info.looked or self.splits) else WHOLE
        if start and self._stream not in start and (self._stream == WHOLE) != (WHOLE in start):
            raise DataError(
                f"{type(self._dataset).__name__}.__iter__",
                got="a split over workers" if self._stream != WHOLE else "no split over workers",
                allowed="what it did when the checkpoint was saved",
            )
        if first is _NOTHING:
            return
        whole = itertools.chain([first], stream)
        for chunk in deal_stream(whole, self._world, batch_size=self._batch_size, tail=self._tail, position=position):
            place: dict[str, Any] = {"position": chunk.position}
            if self._stateful:
                place |= {"dataset": copy.deepcopy(self._dataset.state_dict()), "generators": capture_host()}
            yield chunk, place

    def _noted(self, stream: Iterator[Any], position: int, epoch: int) -> Iterator[Any]:
        for index in itertools.count(position):
            try:
                sample = next(stream)
            except StopIteration:
                return
            except Exception as error:
                note(error, f"lumen: sample {index} of the stream, epoch {epoch}, rank {self._rank}{worker_name()}")
                raise
            yield sample


_NOTHING = object()


def is_stateful(value: Any) -> bool:
    """Whether something keeps its own place: it has `state_dict` and `load_state_dict`.

    Args:
        value: A dataset or a sampler.
    """
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
