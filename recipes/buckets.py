"""Texts of very different lengths, trained in a shuffle, in buckets of similar length, and by a budget of tokens.

A small CNN says which of Python's documentation topics a paragraph is from. The table shows how much of what it
computed was padding, and how many samples a second it trained on.
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
from paddle.io import DataLoader, Dataset, Subset


class Paragraphs(Dataset):
    def __init__(self, count=None) -> None:
        pairs = [(text.strip(), number) for number, topic in enumerate(topics.values()) for text in topic.split("\n\n")]
        texts = [(text.encode()[:1000], number) for text, number in pairs if len(text) > 10][:count]
        self.samples = [{"text": np.frombuffer(text, "uint8"), "topic": number} for text, number in texts]

    def __getitem__(self, index):
        return self.samples[index]

    def __len__(self):
        return len(self.samples)


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
        self.cells = self.tokens = 0

    def forward(self, batch):
        inside = (batch["texts"] > 0).astype("float32").unsqueeze(2)
        features = nn.functional.relu(self.convolve(self.embed(batch["texts"]) * inside)) * inside
        return self.classify(features.sum(axis=1) / inside.sum(axis=1))

    def training_step(self, batch, batch_idx):
        self.cells, self.tokens = self.cells + batch["texts"].size, self.tokens + int(batch["lengths"].sum())
        return nn.functional.cross_entropy(self(batch), batch["topics"])

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", (self(batch).argmax(axis=1) == batch["topics"]).astype("float32").mean())

    def configure_optimizers(self):
        return paddle.optimizer.AdamW(3e-3, parameters=self.parameters())


def main(args) -> None:
    paragraphs = Paragraphs(400 if args.tiny else None)
    train = Subset(paragraphs, [number for number in range(len(paragraphs)) if number % 10])
    val = DataLoader(Subset(paragraphs, range(0, len(paragraphs), 10)), batch_size=64, collate_fn=pad)
    orders = {
        "shuffled": DataLoader(train, batch_size=32, shuffle=True, collate_fn=pad),
        "buckets": data.DataLoader(train, batch_size=32, sampler=data.Bucketed("text", bucket=4), collate_fn=pad),
        "tokens": data.DataLoader(train, sampler=data.Bucketed("text", bucket=4, max_tokens=6000), collate_fn=pad),
    }
    rows = [f"{'order':10}{'batches':>9}{'padding':>9}{'samples/s':>11}{'val_acc':>9}"]
    for name, loader in orders.items():
        lumen.seed_everything(0)
        module, options = Topics(), {"devices": args.devices, "default_root_dir": args.root, "logger": False}
        trainer = lumen.Trainer(max_epochs=args.epochs, enable_checkpointing=False, num_sanity_val_steps=0, **options)
        started = time.perf_counter()
        trainer.fit(module, loader, val)
        rate = trainer.progress.samples / (time.perf_counter() - started)
        batches, waste = trainer.progress.batches // args.epochs, 1 - module.tokens / module.cells
        rows.append(f"{name:10}{batches:9}{waste:9.1%}{rate:11.0f}{trainer.callback_metrics['val_acc']:9.3f}")
    if trainer.is_global_zero:
        print(*rows, sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1, help="how many processes train together")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--root", default="buckets_run", help="the folder of logs")
    parser.add_argument("--tiny", action="store_true", help="a few paragraphs, to see that it runs")
    main(parser.parse_args())
