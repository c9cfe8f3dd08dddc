"""Training batches that ranks do not share: who has fewer repeats its first one, wherever a run stopped."""

from __future__ import annotations

from typing import Any

import pytest

from lumen.core.loading import LoaderPolicy
from lumen.core.progress import Progress
from lumen.core.world import World
from lumen.shell.loaders import open_training
from lumen.shell.rng import Streams
from lumen.shell.train_data import TrainData
from lumen.testing import run_ranks
from lumen_tests.models import Rows, paddle
from lumen_tests.ranks.data_script import Batches

LENGTHS = (3, 5, 1)


def loader(rank: int, sized: bool) -> Any:
    return paddle.io.DataLoader(Rows(LENGTHS[rank], seed=rank), batch_size=1) if sized else Batches(LENGTHS[rank])


def numbers(batch: Any) -> list[float]:
    return [float(value) for leaf in (batch.values() if isinstance(batch, dict) else batch) for value in leaf.flatten()]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("taken", range(6))
def test_padding_goes_on_where_it_was(taken: int, *, sized: bool) -> None:
    def rest(world: World, group: Any, batch: int, consumed: int) -> list[Any]:
        policy = LoaderPolicy(training=True, distribute=False, order=None, seed=0)
        source = open_training(loader(world.rank, sized), world, policy, "train_dataloaders")
        data = TrainData(source, None, world, lambda kind, value: group.gather(world.rank, kind, value), pad=True)
        progress = Progress(batch=batch, consumed=consumed)
        data.length(progress)
        return [(numbers(item), samples) for item, samples, _ in data.batches(progress, Streams(0, world.rank))]

    def both(world: World, group: Any) -> tuple[list[Any], list[Any]]:
        whole = rest(world, group, 0, 0)
        return whole, rest(world, group, taken, sum(samples for _, samples in whole[:taken]))

    for whole, after in run_ranks(3, both):
        assert len(whole) == 5
        assert after == whole[taken:]
