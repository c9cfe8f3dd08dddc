"""Ranks that do different things are found where they meet, and told what each of them is about to do."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from lumen_tests.ranks.test_two_ranks import run

SCRIPT = str(Path(__file__).with_name("apart_script.py"))
pytestmark = pytest.mark.dist


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("log", r"rank 0 waits for 'step values' after 1 batches, while rank 1 trains on batch 2"),
        pytest.param(
            "checkpoint", r"rank 0 waits for .* after 2 batches, while rank 1 trains on batch 3", marks=pytest.mark.slow
        ),
        pytest.param(
            "stream", r"rank 0 waits for .* after 1 batches, while rank 1 trains on batch 2", marks=pytest.mark.slow
        ),
        ("length", r"an epoch of 4 batches of 63 samples on rank 0, 4 batches of 64 samples on rank 1"),
    ],
)
def test_it_is_told_within_seconds(case: str, words: str, tmp_path: Path) -> None:
    started = time.monotonic()
    done = run([SCRIPT, case, str(tmp_path)], expect=1)
    assert time.monotonic() - started < 22  # gloo would give up after 30 s
    assert re.search(words, " ".join(done.stderr.rstrip().splitlines()[-2:])), done.stderr[-2000:]
