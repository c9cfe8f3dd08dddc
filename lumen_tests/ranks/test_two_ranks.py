"""Two ranks as a user starts them: one script, real processes, gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODULE = "lumen_tests.ranks.train_script"
SCRIPT = str(Path(__file__).with_name("train_script.py"))
pytestmark = pytest.mark.dist


def run(arguments: Sequence[str], *, expect: int = 0, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Runs the program as a user does."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == expect, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def result(folder: Path, rank: int = 0) -> Any:
    return json.loads((folder / f"result-{rank}.json").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program on one process with the global batch of two."""
    folder = tmp_path_factory.mktemp("alone")
    run(["-m", MODULE, "--out", str(folder), "--batch-size", "32"])
    return folder


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program on two ranks that lumen starts."""
    folder = tmp_path_factory.mktemp("together")
    run(["-m", MODULE, "--out", str(folder), "--devices", "2"])
    return folder


def assert_same_weights(one: Path, two: Path, tolerance: float) -> None:
    first, second = np.load(one / "weights-0.npz"), np.load(two / "weights-0.npz")
    for name in first.files:
        np.testing.assert_allclose(first[name], second[name], atol=tolerance, rtol=0)


def test_two_ranks_train_to_the_weights_of_one_process_with_the_same_global_batch(alone: Path, together: Path) -> None:
    assert result(together)["size"] == 2
    assert result(together)["digest"] == result(together, 1)["digest"]
    assert result(together)["step"] == result(alone)["step"] == 6
    assert_same_weights(alone, together, 1e-5)


def test_an_evaluation_is_the_same_number_on_both(alone: Path, together: Path) -> None:
    one, first, second = result(alone)["tested"], result(together)["tested"], result(together, 1)["tested"]
    assert first == second
    assert first["test_acc"] == pytest.approx(one["test_acc"], abs=1e-6)
    assert first["test_loss"] == pytest.approx(one["test_loss"], abs=1e-5)


def test_paddles_launcher_runs_the_same_script_to_the_same_weights(together: Path, tmp_path: Path) -> None:
    launch = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(tmp_path / "log"), SCRIPT]
    run([*launch, "--out", str(tmp_path)])
    assert result(tmp_path)["digest"] == result(together)["digest"]


def test_accumulation_on_two_ranks_equals_one_process(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    run(["-m", MODULE, "--out", str(one), "--batch-size", "32", "--accumulate", "2"])
    run(["-m", MODULE, "--out", str(two), "--devices", "2", "--accumulate", "2"])
    assert result(two)["step"] == 4
    assert_same_weights(one, two, 1e-5)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises_ends_the_job_in_seconds_with_its_traceback_last(tmp_path: Path, rank: int) -> None:
    started = time.monotonic()
    done = run(["-m", MODULE, "--out", str(tmp_path), "--devices", "2", "--fail-on", str(rank)], expect=1)
    assert time.monotonic() - started < 25  # both processes' start included
    report = done.stderr[done.stderr.rindex(f"lumen: rank {rank} failed first") :]
    assert f"ValueError: bad sample on rank {rank}" in report
    if sys.version_info >= (3, 11):
        assert f"lumen: in fit, epoch 1, batch 0, step 3, rank {rank} of 2" in report
    assert not list(tmp_path.glob("result-*"))


def test_a_checkpoint_of_two_ranks_goes_on_on_two_and_on_one(together: Path, tmp_path: Path) -> None:
    (path,) = together.glob("lumen_logs/version_0/checkpoints/last")
    two, one = tmp_path / "two", tmp_path / "one"
    two.mkdir()
    one.mkdir()
    arguments = ["--epochs", "3", "--ckpt-path", str(path)]
    run(["-m", MODULE, "--out", str(two), "--devices", "2", *arguments])
    run(["-m", MODULE, "--out", str(one), "--batch-size", "32", *arguments])
    assert result(two)["step"] == result(one)["step"] == 9
    assert_same_weights(one, two, 1e-5)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_tasks_of_a_slurm_step_are_ranks(together: Path, tmp_path: Path) -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2"}
    step |= {"SLURM_JOB_NODELIST": "localhost", "SLURM_NODEID": "0", "MASTER_PORT": str(free_port())}
    command = [sys.executable, SCRIPT, "--out", str(tmp_path)]
    tasks = []
    for rank in ("0", "1"):
        task = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "PYTHONPATH": str(ROOT)}
        tasks.append(subprocess.Popen(command, env={**os.environ, **step, **task}, stderr=subprocess.PIPE, text=True))
    errors = [task.communicate(timeout=100)[1] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], errors
    assert result(tmp_path)["size"] == 2
    assert result(tmp_path)["digest"] == result(tmp_path, 1)["digest"] == result(together)["digest"]
