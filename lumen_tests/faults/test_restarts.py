"""All ranks are started again after a failure, and end with the weights of an unbroken run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lumen_tests.ranks.test_launcher import environ

pytestmark = pytest.mark.dist


def run(folder: Path, *arguments: str, expect: int = 0) -> str:
    command = [sys.executable, "-m", "lumen_tests.faults.restart_script", "--out", str(folder), *arguments]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == expect, done.stderr
    return done.stderr


def result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an unbroken run of two ranks ends with."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return result(folder)


@pytest.mark.parametrize("killed", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_rank_costs_the_work_since_the_last_checkpoint_and_changes_nothing(
    whole: Any, tmp_path: Path, killed: int
) -> None:
    words = run(tmp_path, "--fault", "kill", "--rank", str(killed), "--times", "2", "--max-restarts", "3")
    assert result(tmp_path) == whole
    assert words.count(f"lumen: rank {killed} failed first") == 2
    assert "lumen: all ranks are started again (2 of 3), from " in words
    assert "lumen: all ranks are started again (3 of 3)" not in words


def test_the_users_own_error_at_the_same_step_is_not_tried_a_third_time(tmp_path: Path) -> None:
    words = run(tmp_path, "--fault", "raise", "--times", "9", "--max-restarts", "5", expect=1)
    assert words.count("are started again (") == 1
    assert "lumen: the ranks are not started again: the same error at the same step twice" in words
    assert words.rstrip().splitlines()[-2] == "ValueError: bad sample"


@pytest.mark.slow
def test_no_more_often_than_asked_for(tmp_path: Path) -> None:
    words = run(tmp_path, "--fault", "kill", "--times", "9", "--max-restarts", "1", expect=137)
    assert words.count("are started again (") == 1
    assert "lumen: the ranks are not started again: max_restarts=1" in words


@pytest.mark.slow
def test_one_process_is_started_again_too(tmp_path: Path) -> None:
    words = run(tmp_path, "--devices", "1", "--fault", "kill", "--rank", "0", "--max-restarts", "1")
    assert "lumen: all ranks are started again (1 of 1), from " in words
    assert result(tmp_path)["steps"] == 32
