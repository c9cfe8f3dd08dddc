"""What DataParallel's reducer gets wrong without a word: `overlap_script.py FOLDER`; each case is refused, or right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lumen
from lumen.shell.paddle_shim import paddle
from lumen_tests.ranks.sync_script import CASES, Parts, batches

nn = paddle.nn


def one_rank(module: Any, x: Any, step: int) -> Any:
    """The second layer is used on rank 0 alone."""
    loss = module.one(x).pow(2).mean()
    return loss + module.two(x).pow(2).mean() if module.trainer.world.rank == 0 else loss


def frozen_on_one(module: Any, x: Any, step: int) -> Any:
    """The second layer is frozen on rank 1, in the middle of the run."""
    if module.trainer.world.rank == 1 and step == 2:
        for parameter in module.two.parameters():
            parameter.stop_gradient = True
    return CASES["always"](module, x, step)


def last_batch(module: Any, x: Any, step: int) -> Any:
    """The second layer is used in the first batch of a window of two only, from the second window on."""
    module.count = getattr(module, "count", 0) + 1
    if module.count > 2 and module.count % 2 == 0:
        return module.one(x).pow(2).mean()
    return CASES["always"](module, x, step)


def main(case: str, folder: Path) -> None:
    """Runs a case."""
    loss = {**CASES, "one rank": one_rank, "frozen on one": frozen_on_one, "last batch": last_batch}[
        case.removeprefix("find ")
    ]
    lumen.seed_everything(3)
    module = Parts(loss)
    if case == "unfrozen":
        for parameter in module.two.parameters():
            parameter.stop_gradient = True
    trainer = lumen.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=1,
        strategy=lumen.FleetStrategy(gradient_sync="overlap", find_unused_parameters=case.startswith("find ")),
        accumulate_grad_batches=2 if case == "last batch" else 1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        use_distributed_sampler=False,
        seed=1,
    )
    rank = trainer.global_rank
    rows = [part[2 * rank : 2 * rank + 2] for part in batches("by data" if "by data" in case else "always")]
    trainer.fit(module, rows)
    weights = {name: tensor.numpy().tolist() for name, tensor in module.state_dict().items()}
    (folder / f"weights-{rank}.json").write_text(json.dumps(weights))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
