"""Where one rank takes longer than gloo waits (30 s), for the tests: `wait_script.py PLACE RANK SECONDS FOLDER`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lumen
from lumen_tests.models import Classifier, Rows, digest, loader, paddle


class SlowRows(paddle.io.Dataset):  # type: ignore[misc]
    """Rows of which the first takes long to read."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.rows, self.seconds = Rows(16), seconds

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.sleep()
        return self.rows[index]

    def sleep(self) -> None:
        """Sleeps once."""
        seconds, self.seconds = self.seconds, 0.0
        time.sleep(seconds)


class SlowStream(paddle.io.IterableDataset):  # type: ignore[misc]
    """As `SlowRows`, one after the other, with no known length."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.rows = SlowRows(seconds)

    def __iter__(self) -> Iterator[Any]:
        return iter([self.rows[index] for index in range(len(self.rows))])


class SlowHook(lumen.Callback):
    """Sleeps on one rank in one hook, and in `setup` and `on_save_checkpoint` too if it is named."""

    def __init__(self, hook: str, rank: int, seconds: float) -> None:
        def sleep(trainer: Any, *_: Any) -> None:
            if trainer.world.rank == rank:
                time.sleep(seconds)

        if hook:
            setattr(self, hook, sleep)


def main(place: str, rank: int, seconds: float, folder: str) -> None:
    """Trains two epochs on two ranks."""
    hook = place if place.startswith(("on_", "setup")) else ""
    trainer = lumen.Trainer(
        accelerator="cpu",
        devices=2,
        max_epochs=2,
        default_root_dir=folder,
        enable_progress_bar=False,
        seed=3,
        callbacks=[SlowHook(hook, rank, seconds)],
    )
    mine = seconds if trainer.world.rank == rank else 0.0
    slow: Any = {"stream": SlowStream, "rows": SlowRows}.get(place)
    data = paddle.io.DataLoader(slow(mine), batch_size=4) if slow is not None else loader(16, 4)
    module = Classifier()
    trainer.fit(module, data, loader(8, 4))
    (Path(folder) / f"digest-{trainer.world.rank}").write_text(digest(module))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
