"""Handwritten digits: a small CNN on the 1,797 images that scikit-learn ships, in half a minute on two cores.

Try `--devices 2` for two ranks, and `--resume` to go on where a run of the same folder was stopped.
"""

from __future__ import annotations

import argparse
import hashlib

import lumen
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset, Subset
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class Digits(Dataset):
    def __init__(self) -> None:
        images, self.labels = load_digits(return_X_y=True)
        self.images = images.astype("float32").reshape(-1, 1, 8, 8) / 16

    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    def __len__(self):
        return len(self.labels)


class Classifier(lumen.Module):
    def __init__(self, width=32, dropout=0.5, learning_rate=1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            *(nn.Conv2D(1, width, 3, padding=1), nn.ReLU()),
            *(nn.Conv2D(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2)),
            *(nn.Conv2D(2 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2)),
            *(nn.Flatten(), nn.Dropout(dropout), nn.Linear(16 * width, 10)),
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", self.accuracy(batch), prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.log("test_acc", self.accuracy(batch))

    def accuracy(self, batch):
        images, labels = batch
        return (self.net(images).argmax(axis=-1) == labels).astype("float32").mean()

    def configure_optimizers(self):
        return paddle.optimizer.AdamW(self.hparams.learning_rate, parameters=self.parameters(), weight_decay=0.01)


def digest(module):
    weights = module.state_dict()
    return hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()


def main(args) -> None:
    lumen.seed_everything(0)
    data = Digits()
    train, rest = train_test_split(range(len(data)), test_size=0.3, random_state=0, stratify=data.labels)
    val, test = train_test_split(rest, test_size=0.5, random_state=0, stratify=data.labels[rest])
    if args.tiny:
        train, val, test = train[:64], val[:32], test[:32]
    stopping = lumen.EarlyStopping(monitor="val_acc", mode="max", patience=8)
    trainer = lumen.Trainer(
        max_epochs=min(args.max_epochs, 2) if args.tiny else args.max_epochs,
        devices=args.devices,
        default_root_dir=args.root,
        callbacks=[lumen.ModelCheckpoint(monitor="val_acc", mode="max"), stopping],
    )
    module = Classifier()
    train_loader = DataLoader(Subset(data, train), batch_size=32 // trainer.world_size, shuffle=True)
    val_loader, test_loader = (DataLoader(Subset(data, part), batch_size=64) for part in (val, test))
    trainer.fit(module, train_loader, val_loader, ckpt_path="auto" if args.resume else None)
    weights = digest(module)
    (result,) = trainer.test(module, test_loader, ckpt_path="best")
    if trainer.is_global_zero:
        print(f"test accuracy {result['test_acc']:.4f}, weights {weights}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="auto", help="how many processes train together")
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    parser.add_argument("--root", default="digits_run", help="the folder of logs and checkpoints")
    parser.add_argument("--tiny", action="store_true", help="a few images and two epochs, to see that it runs")
    main(parser.parse_args())
