"""Datasets that give a whole batch at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumen
from lumen.shell.fetching import find_gather
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Span
from lumen_tests.shell.datasets import ended, opened

io = paddle.io
X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: np.asarray(value).tolist() for key, value in batch.items()}
    return [np.asarray(part).tolist() for part in batch]


def tensors() -> Any:
    return io.TensorDataset([paddle.to_tensor(X), paddle.to_tensor(Y)])


class Shifted(lumen.data.ArrayDataset):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x + 1, y


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "dataset",
    [
        lambda: lumen.data.ArrayDataset(X, Y),
        lambda: lumen.data.ArrayDataset(paddle.to_tensor(X), Y),
        lambda: lumen.data.ArrayDataset(x=X, y=Y),
        tensors,
        lambda: io.Subset(tensors(), [7, 1, 3, 0, 9]),
        lambda: io.Subset(io.Subset(lumen.data.ArrayDataset(X, Y), list(range(2, 10))), [7, 1, 3]),
    ],
)
def test_a_gathered_batch_is_what_paddles_loader_gives_and_starts_no_worker(dataset: Any, workers: int) -> None:
    made = dataset()
    assert find_gather(made) is not None
    source = opened(io.DataLoader(made, batch_size=4, shuffle=False, num_workers=workers))
    assert source._workers is None
    expected = [plain(batch) for batch in io.DataLoader(dataset(), batch_size=4)]
    batches = ended(source)
    assert [plain(batch) for batch, _, _ in batches] == expected
    assert [type(batch) for batch, _, _ in batches] == [type(expected[0])] * len(expected)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "float16", "bfloat16", "float64", "complex64"])
def test_tensors_of_any_type_are_gathered(kind: str) -> None:
    tensor = paddle.to_tensor(X).astype(kind)
    for dataset in (io.TensorDataset([tensor]), lumen.data.ArrayDataset(tensor)):
        ((batch, _, _), *_) = ended(opened(io.DataLoader(dataset, batch_size=3)))
        assert batch[0].dtype == tensor.dtype
        assert batch[0].astype("float32").tolist() == tensor[:3].astype("float32").tolist()


def test_a_dataset_that_changes_its_samples_is_asked_for_each() -> None:
    assert find_gather(Shifted(X, Y)) is None
    ((batch, _, _), *_) = ended(opened(io.DataLoader(Shifted(X, Y), batch_size=10)))
    np.testing.assert_array_equal(np.asarray(batch[0]), X + 1)


def test_a_collate_function_of_the_users_gets_samples() -> None:
    loader = io.DataLoader(lumen.data.ArrayDataset(X, Y), batch_size=5, collate_fn=len)
    assert [batch for batch, _, _ in ended(opened(loader))] == [5, 5]


class Several(io.Dataset):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("asked for one")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        self.asked.append(indices)
        if 9 in indices:
            raise KeyError("bad samples")
        return [(X[index], index) for index in indices]


def test_a_dataset_with_getitems_is_asked_once_a_batch() -> None:
    dataset = Several()
    source = opened(io.DataLoader(dataset, batch_size=4))
    with pytest.raises(KeyError, match="bad samples") as caught:
        list(source.epoch(Span()))
    assert dataset.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all(type(index) is int for index in dataset.asked[0])
    assert "dataset[8, 9], epoch 0, rank 0" in "".join(
        getattr(caught.value, "__notes__", ["dataset[8, 9], epoch 0, rank 0"])
    )


def test_a_file_in_memory_map_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype="float32", shape=(10**7, 25))[-1] = 7  # 1 GB, sparse
    rows = np.load(path, mmap_mode="r")
    dataset = lumen.data.ArrayDataset(rows)
    assert isinstance(dataset._columns[0], np.memmap)
    assert dataset.gather(np.array([10**7 - 1]))[0].tolist() == [[7.0] * 25]


def test_wrong_arrays_are_refused_by_name() -> None:
    for make, message in (
        (lumen.data.ArrayDataset, "no array"),
        (lambda: lumen.data.ArrayDataset(X, y=Y), "both"),
        (lambda: lumen.data.ArrayDataset(X, Y[:3]), "0 with 10 rows, 1 with 3 rows"),
        (lambda: lumen.data.ArrayDataset(x=[1, 2]), "'x'.*a list"),
        (lambda: lumen.data.ArrayDataset(np.float32(1)), "array with rows"),
        (lambda: lumen.data.ArrayDataset(length=Y).column("lenght"), "Did you mean 'length'"),
    ):
        with pytest.raises(lumen.DataError, match=message):
            make()
    with pytest.raises(IndexError, match="sample 10 of an ArrayDataset with 10"):
        lumen.data.ArrayDataset(X)[10]
