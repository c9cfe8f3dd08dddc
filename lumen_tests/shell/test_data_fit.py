"""Orders, streams and several loaders in a real fit: given in every way, stopped anywhere, gone on with exactly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumen
from lumen import data
from lumen.shell.paddle_shim import paddle
from lumen_tests.models import Classifier, Rows, digest, quiet
from lumen_tests.shell.datasets import Numbers, Stateful

io = paddle.io
N = 22
LENGTHS = np.random.RandomState(3).randint(1, 30, N)


class Seen(Classifier):
    """It keeps the sizes and the first feature of what it was trained on."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3)
        self.batches: list[list[float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if isinstance(batch, dict):
            batch = [paddle.concat([batch["a"][part], batch["b"][part]]) for part in (0, 1)]
        self.batches.append(batch[0][:, 0].tolist())
        return super().training_step(batch, batch_idx)


class RowStream(io.IterableDataset):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.rows = Rows(N)

    def __iter__(self) -> Any:
        return (self.rows[int(index)] for index in np.random.permutation(N))


def ordered(order: data.Order, batch_size: int = 4, dataset: Any = None, **options: Any) -> Any:
    return data.DataLoader(dataset or Rows(N), batch_size, sampler=order, **options)


def both() -> Any:
    return io.ConcatDataset([Rows(8), Rows(N - 8, seed=1)])


LOADERS = {
    "bucketed": lambda: ordered(data.Bucketed(LENGTHS, bucket=2)),
    "by tokens": lambda: ordered(data.Bucketed(LENGTHS, max_tokens=60), 1, num_workers=2),
    "mixed": lambda: ordered(data.Mixed([0.5, 0.5], stop="never"), 4, both()),
    "balanced": lambda: ordered(data.ClassBalanced(1)),
    "weighted": lambda: ordered(data.Weighted(LENGTHS, 17)),
    "subset": lambda: ordered(data.Subset(range(3, 20), order=data.Sorted(lambda row: row[0][0]))),
    "fold": lambda: ordered(data.Fold(k=3, fold=1)),
    "stream": lambda: io.DataLoader(RowStream(), batch_size=4),
    "stream, workers": lambda: io.DataLoader(RowStream(), batch_size=4, num_workers=2),
    "several": lambda: {
        "a": io.DataLoader(Rows(N), batch_size=4, shuffle=True),
        "b": io.DataLoader(RowStream(), batch_size=3),
    },
    "arrays": lambda: io.DataLoader(data.ArrayDataset(Rows(N).x, Rows(N).y), batch_size=4, shuffle=True),
    "own": lambda: io.DataLoader(
        Rows(N), batch_sampler=io.BatchSampler(sampler=io.SubsetRandomSampler(list(range(N))), batch_size=4)
    ),
}


@pytest.mark.parametrize("name", list(LOADERS))
def test_a_run_that_stops_inside_an_epoch_ends_as_one_that_does_not(name: str, tmp_path: Path) -> None:
    whole = Seen()
    lumen.seed_everything(1)
    start = {key: value.numpy() for key, value in whole.state_dict().items()}
    quiet(tmp_path / "whole", max_epochs=2, enable_checkpointing=False).fit(whole, LOADERS[name]())
    half = Seen()
    half.set_state_dict(start)
    quiet(tmp_path / "half", max_steps=len(whole.batches) // 2 + 2).fit(half, LOADERS[name]())
    rest = Seen()
    quiet(tmp_path / "half", max_epochs=2).fit(rest, LOADERS[name](), ckpt_path="last")
    assert half.batches + rest.batches == whole.batches
    assert digest(rest) == digest(whole)


def test_an_order_is_given_to_the_trainer_the_loader_or_the_sampler() -> None:
    order = data.Bucketed(LENGTHS, bucket=1)
    seen = []
    for loader, options in (
        (io.DataLoader(Rows(N), batch_size=4), {"sampler": order}),
        (ordered(order), {}),
        (io.DataLoader(Rows(N), batch_sampler=data.BatchSampler(Rows(N), order, 4)), {}),
    ):
        module = Seen()
        quiet(None, max_epochs=1, enable_checkpointing=False, logger=False, **options).fit(module, loader)
        seen.append(module.batches)
    assert seen[0] == seen[1] == seen[2]
    x = Rows(N).x[:, 0].tolist()
    spread = [np.ptp([LENGTHS[x.index(value)] for value in batch]) for batch in seen[0]]
    assert np.mean(spread) < 8


def test_the_token_budget_may_change_inside_an_epoch(tmp_path: Path) -> None:
    first, rest = Seen(), Seen()
    quiet(tmp_path, max_steps=3).fit(first, ordered(data.Bucketed(LENGTHS, max_tokens=60), 1))
    other = ordered(data.Bucketed(LENGTHS, max_tokens=35), 1)
    quiet(tmp_path, max_epochs=1).fit(rest, other, ckpt_path="last")
    seen = Counter(value for batch in first.batches + rest.batches for value in batch)
    assert seen == Counter(Rows(N).x[:, 0].tolist())


def test_other_lengths_inside_an_epoch_are_refused(tmp_path: Path) -> None:
    quiet(tmp_path, max_steps=3).fit(Seen(), ordered(data.Bucketed(LENGTHS)))
    with pytest.raises(lumen.CheckpointError, match="an epoch begun in the order Bucketed"):
        quiet(tmp_path, max_epochs=1).fit(Seen(), ordered(data.Bucketed(LENGTHS + 1)), ckpt_path="last")


class Growing(Rows):
    """One sample more in each epoch: its length is asked for as each begins."""

    def __init__(self) -> None:
        super().__init__(20)
        self.now = 8

    def __len__(self) -> int:
        return self.now


class Grow(lumen.Callback):
    def __init__(self, dataset: Growing) -> None:
        self.dataset = dataset

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self.dataset.now += 4


def test_a_dataset_may_change_its_length_between_epochs() -> None:
    dataset, module = Growing(), Seen()
    trainer = quiet(None, max_epochs=3, callbacks=Grow(dataset), logger=False, enable_checkpointing=False)
    trainer.fit(module, io.DataLoader(dataset, batch_size=4, shuffle=True))
    assert [len(batch) for batch in module.batches] == [4] * (2 + 3 + 4)
    assert trainer.progress.samples == 8 + 12 + 16
    assert len({value for batch in module.batches[5:] for value in batch}) == 16


@pytest.mark.parametrize("length", [1, 2, 3])
def test_fewer_samples_than_a_batch(length: int) -> None:
    for order in (data.Shuffled(), data.Bucketed([5] * length), data.Bucketed([5] * length, max_tokens=50)):
        module = Seen()
        size = 1 if isinstance(order, data.Bucketed) and order.max_tokens else 8
        trainer = quiet(None, max_epochs=2, logger=False, enable_checkpointing=False)
        trainer.fit(module, ordered(order, size, Rows(length)))
        assert [len(batch) for batch in module.batches] == [length, length]


def test_loaders_by_name_are_evaluated_one_after_the_other() -> None:
    trainer = quiet(None, logger=False, enable_checkpointing=False)
    named = {"near": io.DataLoader(Rows(5), batch_size=2), "far": io.DataLoader(Rows(7), batch_size=2)}
    plain = quiet(None, logger=False, enable_checkpointing=False)
    module = Classifier()
    results = trainer.validate(module, named)
    assert results == plain.validate(module, list(named.values()))
    assert len(results) == 2
    combined = data.CombinedLoader(named, "sequential")
    assert plain.validate(module, combined) == results


def test_evaluation_sees_a_stream_or_buckets_whole() -> None:
    for loader in (
        io.DataLoader(RowStream(), batch_size=4),
        ordered(data.Bucketed(LENGTHS)),
        io.DataLoader(RowStream(), batch_size=4, num_workers=2),
    ):
        trainer = quiet(None, logger=False, enable_checkpointing=False)
        module = Classifier()
        expected = quiet(None, logger=False, enable_checkpointing=False).validate(
            module, io.DataLoader(Rows(N), batch_size=N)
        )
        (got,) = trainer.validate(module, loader)
        assert got == pytest.approx(expected[0], abs=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: quiet(None, sampler="length"), lumen.ConfigError, "sampler: got 'length'; allowed: an order such as"),
        (lambda: data.DataLoader(Rows(4), 2, sampler=data.Shuffled(), shuffle=True), lumen.ConfigError, "got 'both'"),
        (lambda: data.DataLoader(Rows(4), None, sampler=data.Shuffled()), lumen.ConfigError, "batch_size"),
        (lambda: data.BatchSampler(Rows(4), [1, 2]), lumen.ConfigError, r"BatchSampler\(sampler\)"),
        (lambda: data.Bukceted, AttributeError, "Did you mean 'Bucketed'"),
    ],
)
def test_wrong_uses_are_refused_by_name(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("loader", "order", "message"),
    [
        (lambda: ordered(data.Shuffled()), data.Sequential(), "Sequential for a loader that has Shuffled"),
        (lambda: io.DataLoader(RowStream(), batch_size=2), data.Shuffled(), "which has an order of its own"),
        (lambda: ordered(data.Bucketed(LENGTHS, max_tokens=60), 2), None, "batch_size=2.*max_samples"),
        (lambda: ordered(data.Bucketed(LENGTHS, max_tokens=9), 1), None, r"sample \d+ alone has 26 tokens"),
        (lambda: ordered(data.Sorted(7)), None, "a tuple of 2"),
        (lambda: ordered(data.Mixed([1, 2])), None, "Use a paddle.io.ConcatDataset"),
        (lambda: ordered(data.Weighted([1, 2])), None, "2 values; allowed: one for each of 22 samples"),
        (lambda: ordered(data.Subset([N])), None, "sample numbers below 22"),
        (lambda: ordered(data.Subset([])), None, "an epoch takes nothing"),
    ],
)
def test_orders_that_do_not_fit_the_data_are_refused_before_training(loader: Any, order: Any, message: str) -> None:
    trainer = quiet(None, max_epochs=1, logger=False, enable_checkpointing=False, sampler=order)
    with pytest.raises((lumen.ConfigError, lumen.DataError), match=message):
        trainer.fit(Seen(), loader())
    assert trainer.global_step == 0


def test_a_batch_sampler_works_in_a_plain_loader_without_a_trainer() -> None:
    order = data.BatchSampler(Numbers(10), data.Shuffled(), 4, seed=2)
    loader = io.DataLoader(Numbers(10), batch_sampler=order)
    epochs = []
    for epoch in (0, 0, 1):
        order.set_epoch(epoch)
        epochs.append([int(i) for batch in loader for i in batch["index"]])
    assert epochs[0] == epochs[1] != epochs[2]
    assert sorted(epochs[2]) == list(range(10))
    assert len(loader) == 3
    dropping = data.DataLoader(Numbers(10), 4, sampler=data.Sequential(), drop_last=True)
    assert len(dropping) == 2


def test_a_stream_with_a_state_goes_on_from_it_in_a_checkpoint(tmp_path: Path) -> None:
    class Trained(Seen):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.batches.append([int(i) for i in batch["index"]])
            return self.net(paddle.ones([2, 4])).mean()

    first, rest, dataset = Trained(), Trained(), Stateful(N)
    quiet(tmp_path, max_steps=2).fit(first, io.DataLoader(Stateful(N), batch_size=4))
    quiet(tmp_path, max_epochs=1).fit(rest, io.DataLoader(dataset, batch_size=4), ckpt_path="last")
    assert [index for batch in first.batches + rest.batches for index in batch] == list(range(N))
    assert dataset.read == N - 8


def test_another_kind_of_data_inside_an_epoch_is_refused(tmp_path: Path) -> None:
    quiet(tmp_path, max_steps=2).fit(Seen(), io.DataLoader(RowStream(), batch_size=4))
    with pytest.raises(lumen.CheckpointError, match="begun with data of unknown length; now there are 22 samples"):
        quiet(tmp_path, max_epochs=1).fit(Seen(), io.DataLoader(Rows(N), batch_size=4), ckpt_path="last")
