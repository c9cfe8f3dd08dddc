"""What two real ranks see of every kind of data: the plan's samples, each once, and the rest after a resume."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumen
from lumen.core.orders.base import Shuffled
from lumen.core.orders.bucketed import Bucketed
from lumen.core.sampling import Cursor, SamplerConfig, Tail, plan_epoch
from lumen.core.world import World
from lumen_tests.ranks.data_script import LENGTHS, B, N, Recorder, cases
from lumen_tests.ranks.test_two_ranks import run

pytestmark = pytest.mark.dist
WHOLE = list(range(N))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The folder that the program wrote to, and what each rank saw."""
    folder = tmp_path_factory.mktemp("data")
    done = run(["-m", "lumen_tests.ranks.data_script", "--out", str(folder)])
    (folder / "stderr").write_text(done.stderr)
    return folder, [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


def union(seen: list[Any], name: str) -> list[int]:
    return sorted(index for rank in seen for batch in rank[name]["seen"] for index in batch)


@pytest.mark.parametrize(
    "name",
    [
        "shuffled",
        "shuffled, workers",
        "distributed",
        "of the trainer",
        "bucketed",
        "by tokens",
        "sorted",
        "weighted once",
        "own sampler",
        "stream",
        "stream, workers",
        "splitting stream",
        "ready",
    ],
)
def test_every_sample_is_seen_once_but_for_the_pad_and_ranks_take_equally_many_batches(
    ranks: tuple[Path, list[Any]], name: str
) -> None:
    _, seen = ranks
    assert len({len(rank[name]["seen"]) for rank in seen}) == 1
    together = union(seen, name)
    assert set(together) == set(WHOLE)
    pad = {"own sampler": B, "splitting stream": 2}.get(name, 1)
    assert len(together) - N <= pad
    assert sorted(seen[0][name]["validated"] + seen[1][name]["validated"]) == list(range(11))
    if name not in ("own sampler", "ready"):
        assert [rank[name]["samples"] for rank in seen] == [N, N]


@pytest.mark.parametrize(
    ("name", "order"),
    [("shuffled", Shuffled()), ("shuffled, workers", Shuffled()), ("bucketed", Bucketed(LENGTHS, bucket=2))],
)
def test_each_rank_sees_its_part_of_the_plan(ranks: tuple[Path, list[Any]], name: str, order: Any) -> None:
    config = SamplerConfig(length=N, batch_size=B, order=order, seed=5, tail=Tail.PAD)
    for number, rank in enumerate(ranks[1]):
        world = World(size=2, rank=number, local_size=2, local_rank=number, node=0)
        assert rank[name]["seen"] == [batch.tolist() for batch in plan_epoch(config, world, Cursor())]


def test_batches_by_tokens_keep_the_budget_and_ranks_get_similar_lengths(ranks: tuple[Path, list[Any]]) -> None:
    first, second = (rank["by tokens"]["seen"] for rank in ranks[1])
    for one, two in zip(first, second, strict=True):
        for batch in (one, two):
            assert len(batch) * max(LENGTHS[batch]) <= 70
    apart = [abs(max(LENGTHS[one]) - max(LENGTHS[two])) for one, two in zip(first, second, strict=True)]
    assert np.mean(apart) < 8


def test_several_loaders_and_mixtures(ranks: tuple[Path, list[Any]]) -> None:
    _, seen = ranks
    assert set(union(seen, "combined")) == set(WHOLE)
    counts = Counter(union(seen, "combined"))
    assert min(counts[index] for index in range(9)) > counts[20] == 1
    assert set(union(seen, "mixed")) == set(range(33))


def test_data_that_lumen_does_not_deal_end_on_all_ranks_together(ranks: tuple[Path, list[Any]]) -> None:
    folder, seen = ranks
    for name in ("apart, uneven", "apart, uneven streams"):
        assert [len(rank[name]["seen"]) for rank in seen] == [5, 5]
    assert [rank["apart, one without"].get("seen") for rank in seen] == [None, None]
    assert "no batch" in seen[0]["apart, one without"]["error"]
    stderr = (folder / "stderr").read_text()
    assert "The epoch ends with the rank that has the fewest batches: 5 on rank 0, 7 on rank 1" in stderr
    assert "The epoch ends with the data of rank 0; batches left out: 2 of rank 1." in stderr


def test_a_rank_whose_data_ends_first_repeats_its_first_batch_where_that_is_asked_for(
    ranks: tuple[Path, list[Any]],
) -> None:
    _, seen = ranks
    for name in ("padded", "padded streams"):
        first, second = (rank[name]["seen"] for rank in seen)
        assert len(first) == len(second) == 7
        assert first == [*seen[0]["apart, uneven"]["seen"], first[0], first[0]]
        assert sorted(index for batch in second for index in batch) == list(range(28))
    assert "no batch" in seen[0]["padded, one without"]["error"] == seen[1]["padded, one without"]["error"]


def test_fewer_samples_than_ranks_are_padded_in_training_and_not_in_evaluation(ranks: tuple[Path, list[Any]]) -> None:
    _, seen = ranks
    assert [rank["one sample"]["seen"] for rank in seen] == [[[0]], [[0]]]
    assert [rank["one sample"]["samples"] for rank in seen] == [1, 1]
    assert [rank["validation of one sample"] for rank in seen] == [[0], []]


def test_ranks_with_different_datasets_are_told_so_and_do_not_hang(ranks: tuple[Path, list[Any]]) -> None:
    for rank in ranks[1]:
        assert (
            "an epoch of 7 batches of 53 samples on rank 0, 8 batches of 62 samples on rank 1"
            in rank["differing"]["error"]
        )


@pytest.mark.parametrize("name", ["shuffled", "bucketed", "by tokens", "mixed", "own sampler", "stream", "combined"])
def test_an_epoch_begun_on_two_ranks_is_ended_on_one(ranks: tuple[Path, list[Any]], name: str, tmp_path: Path) -> None:
    folder, seen = ranks
    make, options = cases(0)[name]
    module = Recorder()
    trainer = lumen.Trainer(
        accelerator="cpu",
        max_epochs=1,
        default_root_dir=tmp_path,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        **options,
    )
    trainer.fit(module, make(), ckpt_path=folder / name / "last")
    rest = Counter(index for batch in module.seen for index in batch)
    begun = Counter(index for rank in seen for batch in rank[f"{name}, stopped"]["seen"] for index in batch)
    if name in ("mixed", "combined"):
        assert set(begun + rest) == set(range(33)) if name == "mixed" else set(begun + rest) == set(WHOLE)
    else:
        assert begun + rest == Counter(WHOLE)
