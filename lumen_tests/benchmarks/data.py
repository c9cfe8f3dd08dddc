"""What a batch costs to fetch, beside Paddle's own loader, and what the first batch of a huge set costs.

Loops over the same data run interleaved in one process; a round gives the mean time of a batch, and the ratio of two
rounds is shown as the median over the rounds.

    python -m lumen_tests.benchmarks.data [--rounds 9] [--batches 500]
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import lumen
from lumen import data
from lumen.core.loading import LoaderPolicy
from lumen.core.sampling import Cursor, SamplerConfig, plan_epoch
from lumen.core.world import World
from lumen.shell.loaders import open_source
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Span
from lumen.shell.transfer import to_device

io = paddle.io
BATCH = 32


class Rows(io.Dataset):  # type: ignore[misc]
    """Rows of numpy, one by one."""

    def __init__(self, x: Any, y: Any) -> None:
        super().__init__()
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


def seconds_a_batch(batches: Iterable[Any]) -> float:
    """The mean time of a batch, the loader's start included."""
    started = time.perf_counter()
    count = sum(1 for _ in batches)
    return (time.perf_counter() - started) / count


def fetch(rounds: int, batches: int) -> None:
    """Prints what a batch of 32 rows of 64 features costs."""
    x = np.random.default_rng(0).normal(size=(BATCH * batches, 64)).astype("float32")
    y = np.arange(len(x)) % 10
    tensors = io.TensorDataset([paddle.to_tensor(x), paddle.to_tensor(y)])

    def of_paddle(dataset: Any) -> Callable[[], Iterable[Any]]:
        return lambda: io.DataLoader(dataset, batch_size=BATCH, shuffle=True)

    def of_lumen(dataset: Any) -> Callable[[], Iterable[Any]]:
        loader = io.DataLoader(dataset, batch_size=BATCH, shuffle=True)
        source = open_source(loader, World.single(), LoaderPolicy(training=True), "loader")
        return lambda: (to_device(batch, None) for batch, _, _ in source.epoch(Span()))

    loops = {
        "paddle, TensorDataset": of_paddle(tensors),
        "lumen, TensorDataset": of_lumen(tensors),
        "paddle, rows of numpy": of_paddle(Rows(x, y)),
        "lumen, rows of numpy": of_lumen(Rows(x, y)),
        "lumen, ArrayDataset": of_lumen(data.ArrayDataset(x, y)),
    }
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds + 1):
        for name, make in loops.items():
            times[name].append(seconds_a_batch(make()))
    print(f"paddle {paddle.__version__}: {rounds} rounds of {batches} batches of {BATCH}; medians, and beside paddle's")
    for name, taken in times.items():
        base = times["paddle, TensorDataset" if "Tensor" in name else "paddle, rows of numpy"]
        ratio = statistics.median(one / other for one, other in zip(taken[1:], base[1:], strict=True))
        print(f"{statistics.median(taken[1:]) * 1e6:8.1f} us a batch  {ratio:6.2f}x  {name}")


def first_batch(order: data.Order, length: int, world: World, rounds: int) -> tuple[float, float]:
    """Milliseconds and megabytes until the first batch of an epoch is known."""
    config = SamplerConfig(length=length, batch_size=BATCH, order=order, seed=1)
    taken = []
    for epoch in range(rounds):
        started = time.perf_counter()
        next(iter(plan_epoch(config, world, Cursor(epoch=epoch))))
        taken.append(time.perf_counter() - started)
    tracemalloc.start()
    next(iter(plan_epoch(config, world, Cursor())))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return statistics.median(taken) * 1e3, peak / 1e6


def main() -> None:
    """Prints all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds")
    parser.add_argument("--batches", type=int, default=500, help="batches in a round")
    options = parser.parse_args()
    lumen.seed_everything(0)
    fetch(options.rounds, options.batches)
    lengths = np.random.default_rng(0).integers(1, 500, 10**6)
    world = World(size=8, rank=3, local_size=8, local_rank=3, node=0)
    for name, order, length in (
        ("Shuffled, 10**12 samples", data.Shuffled(), 10**12),
        ("Mixed, 10**12 samples", data.Mixed([0.7, 0.3], sizes=[10**11, 9 * 10**11]), 10**12),
        ("Fold, 10**12 samples", data.Fold(k=5, fold=1), 10**12),
        ("Weighted, 10**6 samples", data.Weighted(lengths), 10**6),
        ("Sorted, 10**6 samples", data.Sorted(lengths), 10**6),
        ("Bucketed, 10**6 samples", data.Bucketed(lengths), 10**6),
        ("Bucketed by tokens, 10**6 samples", data.Bucketed(lengths, max_tokens=8192), 10**6),
    ):
        milliseconds, megabytes = first_batch(order, length, world, options.rounds)
        print(f"{milliseconds:8.2f} ms {megabytes:8.2f} MB  until the first batch: {name}")


if __name__ == "__main__":
    main()
