"""A program that trains awkward models on its ranks, with gradients averaged at the step, and writes the weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lumen
from lumen.shell.paddle_shim import paddle

nn = paddle.nn
STEPS = 4


class Parts(lumen.Module):
    """Two layers and a buffer that is not saved; a function of the step and the batch says what is used."""

    def __init__(self, loss: Callable[[Any, Any, int], Any]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("scale", paddle.rand([1]), persistable=False)
        self.loss = loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self, batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return paddle.optimizer.AdamW(0.1, parameters=self.parameters())


def always(module: Any, x: Any, step: int) -> Any:
    return (module.two(module.one(x)) * module.scale).pow(2).mean()


def late(module: Any, x: Any, step: int) -> Any:
    """The second layer is used from the second step on."""
    return always(module, x, step) if step else module.one(x).pow(2).mean()


def by_data(module: Any, x: Any, step: int) -> Any:
    """A positive first row uses the second layer: on one rank it is, on the other it is not."""
    used = (x[:, :1] > 0).astype("float32")
    return (module.one(x).pow(2) + (module.two(x).pow(2) * used if bool(used.any()) else 0.0)).mean()


def frozen(module: Any, x: Any, step: int) -> Any:
    """The second layer is frozen in the middle of the run, and trained again."""
    for parameter in module.two.parameters():
        parameter.stop_gradient = step == 1
    return always(module, x, step)


def twice(module: Any, x: Any, step: int) -> Any:
    """Two forwards for one backward."""
    return always(module, x, step) + always(module, x * 2, step)


CASES = {"always": always, "late": late, "by data": by_data, "frozen": frozen, "twice": twice}


def batches(name: str) -> list[Any]:
    """What each step takes over all ranks: rank r's rows are those from 2 * r on."""
    rng = np.random.RandomState(len(name))
    rows = rng.normal(size=(STEPS, 4, 3)).astype("float32")
    if name == "by data":
        rows[:, :2, 0], rows[:, 2:, 0] = np.abs(rows[:, :2, 0]), -np.abs(rows[:, 2:, 0])
    return [paddle.to_tensor(part) for part in rows]


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()
    weights: dict[str, Any] = {}
    for name, loss in CASES.items():
        trainer = lumen.Trainer(
            accelerator="cpu",
            devices=options.devices,
            max_epochs=1,
            accumulate_grad_batches=options.accumulate,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            use_distributed_sampler=False,
            strategy=lumen.FleetStrategy(gradient_sync="at_step"),
        )
        rank, size = trainer.world.rank, trainer.world_size
        paddle.seed(3 + rank)  # the ranks begin apart: rank 0's weights and buffers count
        module = Parts(loss)
        rows = [batch[4 // size * rank : 4 // size * (rank + 1)] for batch in batches(name)]
        trainer.fit(module, rows)
        weights[name] = {key: value.numpy().tolist() for key, value in module.named_parameters()}
        weights[name] |= {"scale": module.scale.tolist(), "rank": trainer.world.rank}
    (Path(options.out) / f"weights-{trainer.world.rank}.json").write_text(json.dumps(weights))


if __name__ == "__main__":
    main()
