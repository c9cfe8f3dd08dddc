"""Gradients averaged by Paddle's reducer: what it gets wrong without a word is refused, everything else is equal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lumen_tests.ranks.test_launcher import environ

SCRIPT = str(Path(__file__).with_name("overlap_script.py"))
pytestmark = pytest.mark.dist
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("one rank", "the parameter two.weight: it has a gradient on some ranks only"),
        pytest.param("by data", "the parameter two.weight: it has a gradient on some ranks only", marks=slow),
        pytest.param("frozen", "the parameter two.weight: it has no gradient in this step", marks=slow),
        pytest.param("frozen on one", "the parameter two.weight: it has no gradient in this step", marks=slow),
        pytest.param("late", "", marks=slow),  # Paddle's own error
        pytest.param("find frozen on one", "rank 1 waits for 'frozen parameters' after 3 batches", marks=slow),
        ("last batch", "the parameter two.weight: it has no gradient in this step"),
        pytest.param("always", None, marks=slow),
        pytest.param("twice", None, marks=slow),
        pytest.param("find by data", None, marks=slow),
        pytest.param("find late", None, marks=slow),
    ],
)
def test_it_is_refused_or_the_ranks_stay_together(case: str, words: str | None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, case, str(tmp_path)],
        env=environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if words is not None:
        assert done.returncode == 1, done.stderr[-2000:]
        assert words in done.stderr
        assert "gradient_sync='at_step'" in done.stderr or not words or "waits" in words
    else:
        assert done.returncode == 0, done.stderr[-2000:]
        first, second = (json.loads((tmp_path / f"weights-{rank}.json").read_text()) for rank in (0, 1))
        assert first == second
