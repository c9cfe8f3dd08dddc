"""What a lumen step costs over a hand-written Paddle loop.

MLP 16-32-4, batch 32, batches preloaded, AdamW, cross-entropy. The loops run interleaved in one process, in short
rounds, so that a drift of the machine's speed meets all of them; a round gives the median of its steps, and the ratio
of two rounds' medians is shown as the median over the rounds.

    python -m lumen_tests.benchmarks.step [--rounds 20] [--steps 2000]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import lumen
from lumen.shell.paddle_shim import paddle

Batch = tuple[Any, Any]
WARM_UP = 5


def make_net() -> Any:
    nn = paddle.nn
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


class Plain(lumen.Module):
    """The model with nothing logged."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        x, y = batch
        return paddle.nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return paddle.optimizer.AdamW(learning_rate=1e-3, parameters=self.parameters())


class Logging(Plain):
    """The model with a value logged at each step."""

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("train_loss", loss, prog_bar=True)
        return loss


class Stamped:
    """Ready batches that note when each is asked for: the time between two is a whole step, whoever trains."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.times: list[float] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        self.times = []
        for batch in self.batches:
            self.times.append(time.perf_counter())
            yield batch

    def steps(self) -> list[float]:
        """Seconds of each step but the first few, in which the optimizer makes its accumulators."""
        times = self.times[WARM_UP:]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


def hand_written(batches: Stamped) -> Callable[[], None]:
    """A function that trains on all batches by hand."""
    net = make_net()
    optimizer = paddle.optimizer.AdamW(learning_rate=1e-3, parameters=net.parameters())

    def run() -> None:
        for x, y in batches:
            loss = paddle.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()

    return run


def with_lumen(module: Any, batches: Stamped, root: str, *, extras: bool) -> Callable[[], None]:
    """The same through a Trainer; a fresh fit each time."""

    def run() -> None:
        lumen.Trainer(
            accelerator="cpu",
            max_epochs=1,
            default_root_dir=root,
            logger=extras,
            enable_checkpointing=extras,
            enable_progress_bar=extras,
        ).fit(module, batches)

    return run


def main() -> None:
    """Prints the median step of each loop and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="interleaved rounds")
    parser.add_argument("--steps", type=int, default=2000, help="steps of each loop over all rounds")
    options = parser.parse_args()
    lumen.seed_everything(0)
    steps = WARM_UP + max(2, options.steps // options.rounds)
    batches = Stamped([(paddle.randn([32, 16]), paddle.randint(0, 4, [32])) for _ in range(steps)])
    with tempfile.TemporaryDirectory() as root:
        loops = {
            "hand-written": hand_written(batches),
            "lumen, all off": with_lumen(Plain(), batches, root, extras=False),
            "lumen, bar + csv + log each step + checkpoint": with_lumen(Logging(), batches, root, extras=True),
        }
        medians: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(options.rounds + 1):
            for name, run in loops.items():
                run()
                medians[name].append(statistics.median(batches.steps()))
    print(f"paddle {paddle.__version__}, {options.rounds} rounds of {steps - WARM_UP} steps, batch 32; medians")
    base = medians["hand-written"][1:]
    for name, values in medians.items():
        ratio = statistics.median(value / reference for value, reference in zip(values[1:], base, strict=True))
        print(f"{statistics.median(values[1:]) * 1e6:8.1f} us a step  {ratio:6.3f}x  {name}")


if __name__ == "__main__":
    main()
