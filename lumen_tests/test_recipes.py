"""The recipes, started as a user starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parent.parent / "recipes"

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
if not RECIPES.is_dir():
    pytest.skip("the checkout is not here: lumen is tested as installed", allow_module_level=True)


LAUNCHER = ("-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", "log")


def digits(folder: Path, *flags: str, launcher: tuple[str, ...] = (), timeout: float = 100) -> tuple[float, str]:
    """Runs the recipe; returns the test accuracy and the digest of the weights that it prints."""
    command = [sys.executable, *launcher, str(RECIPES / "digits.py"), "--root", str(folder), *flags]
    env = {**os.environ, "PYTHONPATH": str(RECIPES.parent)}
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert run.returncode == 0, run.stderr
    ((accuracy, digest),) = re.findall(r"test accuracy ([\d.]+), weights ([0-9a-f]{64})", run.stdout)
    return float(accuracy), digest


def test_a_recipe_is_short() -> None:
    for path in RECIPES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 100


def test_digits_is_the_same_when_stopped_and_resumed(tmp_path: Path) -> None:
    for name in ("whole", "halves"):
        (tmp_path / name).mkdir()
    whole = digits(tmp_path / "whole", "--tiny", "--max-epochs", "2")
    digits(tmp_path / "halves", "--tiny", "--max-epochs", "1", "--resume")
    assert digits(tmp_path / "halves", "--tiny", "--max-epochs", "2", "--resume") == whole


@pytest.mark.dist
def test_digits_on_two_ranks_is_the_same_whoever_starts_them(tmp_path: Path) -> None:
    """Paddle's launcher is told how many ranks there are, the recipe is not: its global batch must be the same."""
    for name in ("lumen", "paddle"):
        (tmp_path / name).mkdir()
    started = digits(tmp_path / "lumen", "--tiny", "--devices", "2")
    assert digits(tmp_path / "paddle", "--tiny", launcher=LAUNCHER) == started


def test_buckets_pad_less(tmp_path: Path) -> None:
    command = [sys.executable, str(RECIPES / "buckets.py"), "--root", str(tmp_path), "--tiny"]
    env = {**os.environ, "PYTHONPATH": str(RECIPES.parent)}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    rows = re.findall(r"^(\w+) +\d+ +([\d.]+)% +\d+ +[\d.]+ +[\d.]+$", run.stdout, re.MULTILINE)
    waste = {name: float(percent) for name, percent in rows}
    assert set(waste) == {"shuffled", "buckets", "tokens"}
    assert max(waste["buckets"], waste["tokens"]) < waste["shuffled"] / 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_digits_learns(tmp_path: Path) -> None:
    accuracy, _ = digits(tmp_path, timeout=280)
    assert accuracy >= 0.98
