"""One rank may take longer than gloo's 30 s: the others wait, and the job goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumen_tests.ranks.test_two_ranks import run

SCRIPT = str(Path(__file__).with_name("wait_script.py"))
pytestmark = [pytest.mark.dist, pytest.mark.slow]


@pytest.mark.parametrize(
    "place", ["rows", "stream", "setup", "on_train_epoch_start", "on_validation_end", "on_save_checkpoint"]
)
def test_a_rank_that_takes_longer_than_gloo_waits_loses_nothing(place: str, tmp_path: Path) -> None:
    run([SCRIPT, place, "0" if place == "on_save_checkpoint" else "1", "34", str(tmp_path)], timeout=300)
    first, second = ((tmp_path / f"digest-{rank}").read_text() for rank in (0, 1))
    assert first == second
