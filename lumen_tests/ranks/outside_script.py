"""A program that calls `fleet.init` itself, and hands over what it wrapped, for the tests: `outside_script.py FOLDER`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle.distributed import fleet

import lumen
from lumen_tests.models import Classifier, digest, loader, nn, paddle


class Inner(Classifier):
    """Holds a DataParallel, which it calls itself."""

    def wrap(self) -> Inner:
        """Wraps its network."""
        self.net = paddle.DataParallel(self.net)
        return self


def train(folder: Path, given: Any, module: Any, *, accumulate: int = 1, devices: Any = "auto", **more: Any) -> Any:
    """Trains as train_script does."""
    trainer = lumen.Trainer(
        accelerator="cpu",
        devices=devices,
        max_epochs=2,
        accumulate_grad_batches=accumulate,
        default_root_dir=folder,
        enable_progress_bar=False,
        gradient_clip_val=1.0,
        seed=5,
        **more,
    )
    trainer.fit(given, loader(96, 16, shuffle=True), loader(21, 4))
    return {"digest": digest(module), "size": trainer.world.size, "tested": trainer.test(given, loader(23, 4))[0]}


def refused(call: Callable[[], object]) -> str:
    """What a call was refused with."""
    try:
        call()
    except lumen.LumenError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def main(folder: Path) -> None:
    """Runs all cases, and writes what each gave."""
    warned: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lumen").addHandler(handler)
    fleet.init(is_collective=True)
    found: dict[str, Any] = {}
    lumen.seed_everything(4)
    module = Classifier()
    start = {name: value.clone() for name, value in module.state_dict().items()}
    found["plain"] = refused(lambda: train(folder / "plain", module, module, devices=4))
    layer = paddle.DataParallel(nn.Linear(4, 3))
    found["layer"] = refused(lambda: train(folder / "layer", layer, layer))
    wrapped = paddle.DataParallel(module)
    found["wrapped"] = train(folder / "wrapped", wrapped, module)
    module.set_state_dict(start)
    found["accumulated"] = train(folder / "accumulated", wrapped, module, accumulate=2)
    inner = Inner()
    inner.set_state_dict(start)
    found["inner"] = train(folder / "inner", inner.wrap(), inner)
    partly = Inner().wrap()
    partly.extra = nn.Linear(2, 2)
    found["partly"] = refused(lambda: train(folder / "partly", partly, partly))
    found["devices"] = train(folder / "devices", wrapped, module, strategy=lumen.FleetStrategy(gradient_sync="at_step"))
    found["warned"] = warned
    rank = paddle.distributed.get_rank()
    (folder / f"found-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
