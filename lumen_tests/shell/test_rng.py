"""The streams of random numbers: derived, saved, set back, isolated."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumen.errors import CheckpointError
from lumen.shell.checkpoint_io import read, write
from lumen.shell.paddle_shim import is_paddle2, paddle
from lumen.shell.rng import Streams, seeded

ROOT = Path(__file__).parents[2]


def draw() -> list[Any]:
    layer = paddle.nn.Dropout(0.5)
    return [
        paddle.randn([3]).numpy().tolist(),
        layer(paddle.ones([8])).numpy().tolist(),
        paddle.randperm(7).numpy().tolist(),
        np.random.randn(2).tolist(),
        random.gauss(0, 1),
        random.random(),
    ]


def test_streams_depend_on_seed_epoch_and_rank_and_on_nothing_else() -> None:
    seen = []
    for seed, rank, epoch in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)):
        Streams(seed, rank).begin_epoch(epoch)
        first = draw()
        draw()
        Streams(seed, rank).begin_epoch(epoch)
        assert draw() == first
        seen += [json.dumps(part) for part in first]
    assert len(set(seen)) == len(seen)


def test_saved_states_go_on_in_another_process_to_the_bit(tmp_path: Path) -> None:
    streams = Streams(4, 0)
    streams.begin_epoch(0)
    draw()
    path = write(tmp_path / "c", {"rng": streams.capture()})
    streams.begin_batch(0, 9)
    expected = draw() if streams.per_batch else None
    if expected is None:
        streams.restore(read(path).sections["rng"])
        expected = draw()
    program = (
        "from lumen_tests.shell.test_rng import *\n"
        f"streams = Streams(4, 0)\ndraw()\nstreams.restore(read({str(path)!r}).sections['rng'])\n"
        "if streams.per_batch: streams.begin_batch(0, 9)\n"
        "print(json.dumps(draw()))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_states_set_back_in_the_same_process_repeat_what_came_after() -> None:
    streams = Streams(4, 0)
    streams.begin_epoch(0)
    draw()
    saved = streams.capture()
    if streams.per_batch:
        streams.begin_batch(0, 1)
    after = draw()
    streams.begin_epoch(5)
    streams.restore(saved)
    if streams.per_batch:
        streams.begin_batch(0, 1)
    assert draw() == after


def test_isolation_sets_everything_back_also_after_an_error() -> None:
    streams = Streams(4, 0)
    streams.begin_epoch(0)
    expected = draw()
    streams.begin_epoch(0)

    def disturb() -> None:
        with streams.isolated():
            draw()
            paddle.seed(0)
            np.random.seed(0)
            random.seed(0)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        disturb()
    assert draw() == expected


@pytest.mark.skipif(is_paddle2, reason="2.6.2 on a CPU saves no state of Paddle's generator")
def test_states_of_another_paddle_are_refused_and_nothing_is_changed() -> None:
    streams = Streams(4, 0)
    saved = {**streams.capture(), "paddle": []}
    before = np.random.get_state()[1].tolist()
    np.random.rand()
    with pytest.raises(CheckpointError, match="another version of Paddle"):
        streams.restore(saved)
    assert np.random.get_state()[1].tolist() == before


def draws(count: int) -> Any:
    """Numbers of all three generators, drawn one by one."""
    for _ in range(count):
        yield np.random.rand(), np.random.randn(), random.random(), paddle.rand([1]).item()


@pytest.mark.parametrize("ahead", [1, 3])
def test_the_random_numbers_of_an_iterable_are_its_own_and_the_runs_are_as_they_were(ahead: int) -> None:
    alone = list(seeded(draws(5), 7, ahead=ahead))
    assert alone == list(seeded(draws(5), 7, ahead=ahead))
    assert alone != list(seeded(draws(5), 8, ahead=ahead))
    np.random.seed(1), random.seed(1), paddle.seed(1)
    expected = [(np.random.rand(), random.random(), paddle.rand([1]).item()) for _ in range(5)]
    np.random.seed(1), random.seed(1), paddle.seed(1)
    mixed = seeded(draws(5), 7, ahead=ahead)
    between = []
    got = []
    for value in mixed:
        got.append(value)
        between.append((np.random.rand(), random.random(), paddle.rand([1]).item()))
    assert got == alone
    assert between == expected


def test_an_iterable_that_draws_nothing_is_no_longer_kept_apart() -> None:
    def late(first: int) -> Any:
        for number in range(6):
            yield np.random.rand() if number >= first else None

    np.random.seed(3)
    expected = np.random.rand(3).tolist()
    np.random.seed(3)
    assert list(seeded(late(3), 7, probe=2))[3:] == expected  # the run's own: nothing was drawn in the first two
    np.random.seed(3)
    assert list(seeded(late(1), 7, probe=2))[3:] != expected
    assert np.random.rand() == expected[0]


def test_an_error_comes_after_what_was_read_before_it() -> None:
    def failing() -> Any:
        yield from (1, 2)
        raise KeyError("third")

    values = seeded(failing(), 1, ahead=8)
    assert [next(values), next(values)] == [1, 2]
    with pytest.raises(KeyError, match="third"):
        next(values)
