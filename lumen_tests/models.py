"""Small modules and data that the shell tests share."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import lumen
from lumen.shell.paddle_shim import paddle

nn = paddle.nn
F = paddle.nn.functional


class Rows(paddle.io.Dataset):  # type: ignore[misc]
    """Seeded rows of 4 features and a class of 3."""

    def __init__(self, length: int, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(length, 4)).astype("float32")
        self.y = rng.integers(0, 3, size=length).astype("int64")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.x[index], self.y[index]


class Classifier(lumen.Module):
    """A small network; with dropout, a scheduler and logged values on demand."""

    def __init__(self, dropout: float = 0.0, schedule: str | None = None, lr: float = 0.05) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))
        self.schedule = schedule
        self.lr = lr
        self.seen: list[Any] = []

    def loss(self, batch: Any) -> tuple[Any, Any]:
        x, y = batch
        logits = self.net(x)
        return F.cross_entropy(logits, y), (logits.argmax(-1) == y).astype("float32").mean()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss, _ = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss, acc = self.loss(batch)
        self.log_dict({"val_loss": loss, "val_acc": acc})

    def test_step(self, batch: Any, batch_idx: int) -> None:
        loss, acc = self.loss(batch)
        self.log_dict({"test_loss": loss, "test_acc": acc})

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch[0])

    def configure_optimizers(self) -> Any:
        if self.schedule is None:
            return paddle.optimizer.AdamW(learning_rate=self.lr, parameters=self.parameters())
        scheduler = paddle.optimizer.lr.CosineAnnealingDecay(learning_rate=self.lr, T_max=10)
        optimizer = paddle.optimizer.AdamW(learning_rate=scheduler, parameters=self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.schedule}}


def digest(module: Any) -> str:
    """A fingerprint of all weights."""
    found = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        found.update(name.encode())
        found.update(np.ascontiguousarray(tensor.numpy()).tobytes())
    return found.hexdigest()


def quiet(root: Any, **options: Any) -> lumen.Trainer:
    """A trainer on the CPU that writes below a folder and shows nothing."""
    settings: dict[str, Any] = {"accelerator": "cpu", "default_root_dir": root, "enable_progress_bar": False, "seed": 3}
    return lumen.Trainer(**(settings | options))


def loader(length: int, batch_size: int = 4, **options: Any) -> Any:
    """A plain loader over seeded rows."""
    return paddle.io.DataLoader(Rows(length), batch_size=batch_size, **options)
