"""The random numbers that training meets: derived for each epoch, saved and set back inside one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.random import mtrand

from lumen.core.seeding import batch_key, stream_key
from lumen.errors import CheckpointError
from lumen.shell.paddle_shim import gpu_count, is_paddle2, paddle


class Streams:
    """Paddle's, numpy's and Python's global generators of one rank in one run.

    Args:
        seed: The run's seed, >= 0.
        rank: The global rank, >= 0.

    Attributes:
        per_batch: Whether Paddle's generator must be derived for every batch: where its state cannot be set back from
            plain data (Paddle 2.6.2 on a CPU loses the engine). Elsewhere the 6 to 11 us of it are saved.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self._seed = seed
        self._rank = rank
        self.per_batch = is_paddle2 and not gpu_count()
        self._epoch, self._key = -1, 0

    def begin_epoch(self, epoch: int) -> None:
        """Derives all three streams for an epoch."""
        paddle.seed(stream_key(self._seed, epoch, self._rank, "paddle"))
        np.random.seed(stream_key(self._seed, epoch, self._rank, "numpy"))
        random.seed(stream_key(self._seed, epoch, self._rank, "python"))

    def begin_batch(self, epoch: int, batch: int) -> None:
        """Derives Paddle's stream for one batch; called where `per_batch` says so."""
        if self._epoch != epoch:
            self._epoch, self._key = epoch, stream_key(self._seed, epoch, self._rank, "paddle")
        # the generator itself: paddle.seed of a GPU build also asks the driver for GPUs, which takes 40 us
        _cpu().manual_seed(batch_key(self._key, batch))

    def capture(self) -> dict[str, Any]:
        """The states of all three, as plain data and arrays."""
        return capture_host() | {"paddle": [] if self.per_batch else [_plain(state) for state in paddle_states()]}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Sets all three to states that `capture` gave, on this Paddle and kind of device.

        Raises:
            CheckpointError: The states are another Paddle's or another kind of device's.
        """
        states = [] if self.per_batch else self._paddle_states(saved["paddle"])
        restore_host(saved)
        if states:
            set_paddle_states(states)

    def _paddle_states(self, saved: list[Any]) -> list[Any]:
        now = paddle_states()
        if len(now) != len(saved) or any(len(_plain(n)) != len(s) for n, s in zip(now, saved, strict=True)):
            raise CheckpointError(
                "random states",
                got="those of another version of Paddle or another kind of device",
                allowed="those of the Paddle that runs now",
                do="Resume with the Paddle and the device that the run was saved with, or at an epoch's end.",
            )
        return [_rebuilt(type(state), plain) for state, plain in zip(now, saved, strict=True)]

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Sets all three generators back afterwards, whatever happened inside."""
        device = paddle_states()
        try:
            with host_isolated():
                yield
        finally:
            set_paddle_states(device)


def capture_host() -> dict[str, Any]:
    """The states of numpy's and Python's global generators, as plain data and arrays."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, gauss_next = random.getstate()
    return {
        "numpy": {
            "kind": str(kind),
            "keys": np.asarray(keys, dtype="uint32"),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        },
        "python": {"version": version, "words": np.asarray(words, dtype="uint64"), "gauss_next": gauss_next},
    }


def restore_host(saved: Mapping[str, Any]) -> None:
    """Sets numpy's and Python's global generators to states that `capture_host` gave.

    Args:
        saved: The states.
    """
    numpy, python = saved["numpy"], saved["python"]
    np.random.set_state((numpy["kind"], numpy["keys"], numpy["position"], numpy["has_gauss"], numpy["gauss"]))
    random.setstate((python["version"], tuple(int(word) for word in python["words"]), python["gauss_next"]))


def seed_host(key: int) -> None:
    """Seeds numpy's and Python's global generators.

    Args:
        key: From 0 to 2**32 - 1.
    """
    np.random.seed(key)
    random.seed(key)


def seed_worker(key: int) -> None:
    """Seeds all generators of a worker process: numpy's, Python's and Paddle's of the CPU.

    Args:
        key: From 0 to 2**32 - 1.
    """
    seed_host(key)
    _cpu().manual_seed(key)


@contextlib.contextmanager
def host_isolated() -> Iterator[None]:
    """Sets the global generators of the CPU, numpy's, Python's and Paddle's, back afterwards, whatever happened."""
    numpy, python, cpu = np.random.get_state(), random.getstate(), paddle_states(device=False)
    try:
        yield
    finally:
        np.random.set_state(numpy)
        random.setstate(python)
        set_paddle_states(cpu)


class OwnGenerators:
    """A second set of the global generators, seeded by a key; inside the context they are in place of the run's own.

    numpy's bit generators are exchanged, not their states: 0.1 us, not 150. The second half of a pair of normal numbers
    that `np.random.randn` keeps is dropped by that, in a resumed run as in an unbroken one.

    Args:
        key: From 0 to 2**32 - 1.
        device: Paddle's generators of GPUs too, which a forked worker must not touch.
    """

    def __init__(self, key: int, *, device: bool) -> None:
        self._numpy: Any = np.random.MT19937()
        self._device = device
        with host_isolated():
            random.seed(key)
            self._python = random.getstate()
        outside = paddle_states(device=device)
        if device:
            paddle.seed(key)
        else:
            _cpu().manual_seed(key)
        self._paddle = paddle_states(device=device)
        set_paddle_states(outside)
        self._outside: Any = None
        with self:
            np.random.seed(key)

    def __enter__(self) -> None:
        self._outside = mtrand.get_bit_generator(), random.getstate(), paddle_states(device=self._device)
        mtrand.set_bit_generator(self._numpy)
        random.setstate(self._python)
        set_paddle_states(self._paddle)

    def __exit__(self, *_: object) -> None:
        self._numpy, self._python = mtrand.get_bit_generator(), random.getstate()
        numpy, python, device = self._outside
        mtrand.set_bit_generator(numpy)
        random.setstate(python)
        self._paddle = paddle_states(device=self._device)
        set_paddle_states(device)

    def fingerprint(self) -> tuple[Any, ...]:
        """What changes when a number is drawn."""
        state = self._numpy.state["state"]
        return state["pos"], state["key"].tobytes(), self._python, [_plain(one) for one in self._paddle]


def seeded(
    values: Iterable[Any], key: int, *, device: bool = True, ahead: int = 1, probe: int | None = None
) -> Iterator[Any]:
    """What an iterable gives when the global generators are its own, seeded by a key.

    Args:
        values: It is asked for its iterator under those generators too.
        key: From 0 to 2**32 - 1.
        device: Paddle's generators of GPUs too, which a forked worker must not touch.
        ahead: How many values are read at once: the exchange of the generators takes about 25 us.
        probe: After so many values without a random number the generators are exchanged no more; None: always.
    """
    own = OwnGenerators(key, device=device)
    before = own.fingerprint() if probe is not None else None
    iterator = None
    ended: BaseException | None = None
    count = 0
    while ended is None:
        read: list[Any] = []
        with own:
            try:
                iterator = iter(values) if iterator is None else iterator
                while len(read) < ahead:
                    read.append(next(iterator))
            except Exception as error:  # noqa: BLE001 - what was read before it comes first
                ended = error
        yield from read
        count += len(read)
        if before is not None and probe is not None and count >= probe and ended is None:
            if own.fingerprint() == before and iterator is not None:
                yield from iterator
                return
            before = None
    if not isinstance(ended, StopIteration):
        raise ended


def paddle_states(*, device: bool = True) -> list[Any]:
    """The states of Paddle's generators: the CPU's, then those of the GPUs.

    Args:
        device: Those of the GPUs too.
    """
    return [_cpu().get_state(), *(paddle.get_cuda_rng_state() if device and gpu_count() else [])]


def _rebuilt(kind: Any, plain: list[Any]) -> Any:
    state = kind.__new__(kind)
    state.__setstate__((*plain[:3], *(list(text.encode("ascii")) for text in plain[3:])))
    return state


def set_paddle_states(states: list[Any]) -> None:
    """Sets the generators to states that `paddle_states` gave in this process, or that were rebuilt from plain data."""
    _cpu().set_state(states[0])
    if len(states) > 1:
        paddle.set_cuda_rng_state(states[1:])


def _cpu() -> Any:
    """Paddle's generator of the CPU (`paddle.get_rng_state("cpu")` fails on 2.6.2)."""
    return paddle.base.core.default_cpu_generator()


def _plain(state: Any) -> list[Any]:
    """Device, seed and offset of a generator, and the text of its engine where there is one (Paddle 3 on a CPU)."""
    device, seed, offset, *engine = state.__getstate__()
    return [device, seed, offset, *(bytes(part).decode("ascii") for part in engine if part)]
