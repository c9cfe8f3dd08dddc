"""A program that fits over every kind of data on its ranks, and writes which samples each of them saw."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lumen
from lumen import data
from lumen.shell.paddle_shim import paddle
from lumen_tests.shell.datasets import Numbers, Splitting, Stream

io = paddle.io
N, B = 53, 4
LENGTHS = np.random.RandomState(7).randint(1, 30, N)


class Recorder(lumen.Module):
    """Trains one weight, and keeps the indices of the samples that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = paddle.nn.Linear(1, 1)
        self.seen: list[list[int]] = []
        self.validated: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        parts = batch.values() if "index" not in batch else [batch]
        self.seen.append([int(i) for part in parts for i in part["index"]])
        return self.layer(paddle.ones([1, 1])).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated += [int(i) for i in batch["index"]]

    def configure_optimizers(self) -> Any:
        return paddle.optimizer.SGD(0.1, parameters=self.parameters())


class Batches:
    """Batches without a length, of which a rank may have more than another."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        return ({"index": paddle.to_tensor([number])} for number in range(self.count))


def ordered(order: data.Order, workers: int = 0, batch_size: int = B, dataset: Any = None) -> Any:
    return data.DataLoader(dataset or Numbers(N), batch_size, sampler=order, num_workers=workers)


def cases(rank: int) -> dict[str, tuple[Callable[[], Any], dict[str, Any]]]:
    """What is fitted, with options of the Trainer."""
    both = io.ConcatDataset([Numbers(20), Numbers(33)])
    dealing = io.DistributedBatchSampler(Numbers(N), B, num_replicas=2, rank=rank, shuffle=True)
    padded = {"strategy": lumen.FleetStrategy(uneven_data="pad")}
    apart = {"use_distributed_sampler": False}
    return {
        "shuffled": (lambda: io.DataLoader(Numbers(N), batch_size=B, shuffle=True), {}),
        "shuffled, workers": (lambda: io.DataLoader(Numbers(N), batch_size=B, shuffle=True, num_workers=2), {}),
        "distributed": (lambda: io.DataLoader(Numbers(N), batch_sampler=dealing), {}),
        "of the trainer": (lambda: io.DataLoader(Numbers(N), batch_size=B), {"sampler": data.Bucketed(LENGTHS)}),
        "bucketed": (lambda: ordered(data.Bucketed(LENGTHS, bucket=2), 2), {}),
        "by tokens": (lambda: ordered(data.Bucketed(LENGTHS, max_tokens=70), 0, 1), {}),
        "sorted": (lambda: ordered(data.Sorted(lambda item: -item["index"])), {}),
        "weighted once": (lambda: ordered(data.Weighted(LENGTHS, replacement=False), 2), {}),
        "mixed": (lambda: ordered(data.Mixed([0.5, 0.5], stop="last"), 0, B, both), {}),
        "own sampler": (
            lambda: io.DataLoader(
                Numbers(N), batch_sampler=io.BatchSampler(sampler=io.SubsetRandomSampler(list(range(N))), batch_size=B)
            ),
            {},
        ),
        "stream": (lambda: io.DataLoader(Stream(N, shuffle=True), batch_size=B), {}),
        "stream, workers": (lambda: io.DataLoader(Stream(N, shuffle=True), batch_size=B, num_workers=2), {}),
        "splitting stream": (lambda: io.DataLoader(Splitting(N), batch_size=B, num_workers=2), {}),
        "ready": (lambda: Batches(N), {}),
        "combined": (
            lambda: {"a": io.DataLoader(Numbers(N), batch_size=B), "b": io.DataLoader(Numbers(9), batch_size=B)},
            {},
        ),
        "one sample": (lambda: io.DataLoader(Numbers(1), batch_size=B, shuffle=True), {}),
        "apart, uneven": (lambda: io.DataLoader(Numbers(20 + 8 * rank), batch_size=B), apart),
        "apart, uneven streams": (lambda: io.DataLoader(Stream(20 + 8 * rank), batch_size=B), apart),
        "padded": (lambda: io.DataLoader(Numbers(20 + 8 * rank), batch_size=B), {**apart, **padded}),
        "padded streams": (lambda: io.DataLoader(Stream(20 + 8 * rank), batch_size=B), {**apart, **padded}),
        "padded, one without": (lambda: Batches(0 if rank else 3), {**apart, **padded}),
        "apart, one without": (lambda: Batches(0 if rank else 3), apart),
        "differing": (lambda: io.DataLoader(Numbers(N + 9 * rank), batch_size=B), {}),
    }


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    out = Path(parser.parse_args().out)
    common = {"devices": 2, "accelerator": "cpu", "enable_progress_bar": False, "logger": False, "seed": 5}
    seen: dict[str, Any] = {}
    trainer = lumen.Trainer(max_epochs=1, enable_checkpointing=False, **common)
    trainer.validate(Recorder(), io.DataLoader(Numbers(9), batch_size=B))
    rank = trainer.world.rank
    for name, (make, options) in cases(rank).items():
        module = Recorder()
        trainer = lumen.Trainer(max_epochs=1, enable_checkpointing=False, num_sanity_val_steps=0, **common, **options)
        try:
            trainer.fit(module, make(), io.DataLoader(Numbers(11), batch_size=2, num_workers=2))
        except lumen.DataError as error:
            seen[name] = {"error": str(error)}
            continue
        seen[name] = {"seen": module.seen, "validated": module.validated, "samples": trainer.progress.samples}
    for name in ("shuffled", "bucketed", "by tokens", "mixed", "own sampler", "stream", "combined"):
        make, options = cases(rank)[name]
        module = Recorder()
        keep = lumen.ModelCheckpoint(out / name)
        limited = lumen.Trainer(max_steps=3, callbacks=keep, default_root_dir=out, **common, **options)
        limited.fit(module, make())
        seen[f"{name}, stopped"] = {"seen": module.seen}
    module = Recorder()
    trainer.validate(module, io.DataLoader(Numbers(1), batch_size=B))
    seen["validation of one sample"] = module.validated
    (out / f"seen-{rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
