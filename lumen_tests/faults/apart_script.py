"""Two ranks that do different things: `apart_script.py CASE FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lumen
from lumen_tests.models import Classifier, Rows, loader, paddle


class Stream(paddle.io.IterableDataset):  # type: ignore[misc]
    """More samples on one rank than on the other, dealt as if they were the same."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        rows = Rows(self.length)
        return (rows[index] for index in range(self.length))


def main(case: str, folder: Path) -> None:
    """Runs a case."""
    options: dict[str, Any] = {"accelerator": "cpu", "devices": 2, "max_epochs": 3, "enable_progress_bar": False}
    rank = lumen.Trainer(**options).global_rank
    data: Any = loader(64, 4)
    callbacks: list[Any] = []
    if case == "log":
        options["log_every_n_steps"] = 1 + rank
    elif case == "checkpoint":
        callbacks = [lumen.ModelCheckpoint(every_n_train_steps=2 + rank)]
    elif case == "stream":
        data = paddle.io.DataLoader(Stream(6 + 6 * rank), batch_size=3)
    elif case == "length":
        data = loader(63 + rank, 8)
    trainer = lumen.Trainer(default_root_dir=folder, callbacks=callbacks, **options)
    trainer.fit(Classifier(), data)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
