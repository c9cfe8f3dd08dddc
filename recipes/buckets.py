"""Texts of very different lengths, trained in a shuffle, in buckets of similar length, and by a budget of tokens.

A small CNN tells the topics of Python's documentation apart. The table shows how much the first rank padded.
"""

from __future__ import annotations

import argparse
import time
from pydoc_data.topics import topics

import lumen
import numpy as np
import paddle
from lumen import data
from paddle import nn


def paragraphs(count):
    pairs = [(text.strip(), number) for number, topic in enumerate(topics.values()) for text in topic.split("\n\n")]
    texts = [(text.encode()[:1000], number) for text, number in pairs if len(text) > 10][:count]
    return [{"text": np.frombuffer(text, "uint8"), "topic": number} for text, number in texts]


def pad(samples):
    lengths = np.array([len(sample["text"]) for sample in samples])
    texts = np.zeros((len(samples), lengths.max()), "int64")
    for row, sample in zip(texts, samples, strict=True):
        row[: len(sample["text"])] = sample["text"]
    return {"texts": texts, "lengths": lengths, "topics": np.array([sample["topic"] for sample in samples])}


class Topics(lumen.Module):
    def __init__(self, width=48) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.convolve = nn.Conv1D(width, width, 5, padding=2, data_format="NLC")
        self.classify = nn.Linear(width, len(topics))

    def forward(self, batch):
        inside = (batch["texts"] > 0).astype("float32").unsqueeze(2)
        features = nn.functional.relu(self.convolve(self.embed(batch["texts"]) * inside)) * inside
        return self.classify(features.sum(axis=1) / inside.sum(axis=1))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self(batch), batch["topics"])
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch["topics"]))
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", (self(batch).argmax(axis=1) == batch["topics"]).astype("float32").mean())

    def configure_optimizers(self):
        return paddle.optimizer.AdamW(3e-3, parameters=self.parameters())


class Meter(lumen.Callback):
    cells = tokens = 0

    def on_train_epoch_start(self, trainer, module):
        self.begun, self.before = time.perf_counter(), trainer.progress.samples

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.cells += batch["texts"].size
        self.tokens += int(batch["lengths"].sum())  # waits for the device, so that the time is of the whole batch
        self.rate = (trainer.progress.samples - self.before) / (time.perf_counter() - self.begun)  # in the last epoch


def main(args) -> None:
    samples = paragraphs(400 if args.tiny else None)
    train = [sample for number, sample in enumerate(samples) if number % 10]
    val = data.DataLoader(samples[::10], batch_size=64, collate_fn=pad)
    size, budget = (8, 2000) if args.tiny else (32, 6400)  # of all ranks together
    rows = ["order       batches  padding  samples/s    loss  val_acc"]
    for name in ("shuffled", "buckets", "tokens"):
        lumen.seed_everything(0)
        module, meter = Topics(), Meter()
        options = {"logger": False, "enable_checkpointing": False, "num_sanity_val_steps": 0, "callbacks": [meter]}
        trainer = lumen.Trainer(max_epochs=args.epochs, devices=args.devices, default_root_dir=args.root, **options)
        each, tokens = size // trainer.world_size, budget // trainer.world_size
        how = {
            "shuffled": {"batch_size": each, "shuffle": True},
            "buckets": {"batch_size": each, "sampler": data.Bucketed("text", bucket=4)},
            "tokens": {"sampler": data.Bucketed("text", bucket=4, max_tokens=tokens)},
        }
        trainer.fit(module, data.DataLoader(train, collate_fn=pad, **how[name]), val)
        row = f"{name:10}{trainer.num_training_batches:9}{1 - meter.tokens / meter.cells:9.1%}{meter.rate:11.0f}"
        rows.append(row + "{train_loss:8.3f}{val_acc:9.3f}".format_map(trainer.callback_metrics))
    if trainer.is_global_zero:
        print(*rows, sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="auto", help="how many processes train together")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--root", default="buckets_run", help="the folder of logs")
    parser.add_argument("--tiny", action="store_true", help="a few paragraphs, to see that it runs")
    main(parser.parse_args())
