"""Which checkpoints stay, and when patience is over."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.retention import Kept, Patience, TopK, Verdict, better, check_mode, consider, observe
from lumen.errors import ConfigError

scores = st.lists(st.floats(-10, 10) | st.just(math.nan), max_size=15)


def after(scores_: list[float | None], k: int, mode: str) -> tuple[TopK, set[str]]:
    """The best after some scores, and the folders that are there."""
    top, folders = TopK(k=k, mode=check_mode(mode)), set()
    for step, score in enumerate(scores_):
        decision = consider(top, Kept(name=str(step), score=score, step=step))
        if decision.save:
            folders.add(str(step))
        folders -= set(decision.drop)
        top = decision.after
    return top, folders


@given(scores, st.integers(-1, 4), st.sampled_from(["min", "max"]))
def test_what_stays_are_the_best_and_no_folder_is_left_over(given_: list[float], k: int, mode: str) -> None:
    top, folders = after(list(given_), k, mode)
    assert folders == {kept.name for kept in top.kept}
    count = len(given_) if k == -1 else min(k, len(given_))
    assert len(top.kept) == count
    ranked = sorted((s for s in given_ if not math.isnan(s)), reverse=mode == "max")
    mine = [kept.score for kept in top.kept if kept.score is not None and not math.isnan(kept.score)]
    assert mine == ranked[: len(mine)]
    assert len(mine) == min(len(ranked), count)


def test_nan_never_wins_and_the_earlier_of_equals_stays() -> None:
    top, _ = after([math.nan, 0.5, math.nan, 0.5], 1, "max")
    assert top.best is not None
    assert top.best.name == "1"
    assert after([math.nan], 1, "max")[0].best is None


def test_without_scores_the_newest_stays() -> None:
    top, folders = after([None, None, None], 2, "min")
    assert [kept.name for kept in top.kept] == ["2", "1"]
    assert folders == {"1", "2"}


def test_a_worse_one_displaces_nothing_whatever_its_name() -> None:
    top = TopK(k=1, kept=(Kept(name="best", score=0.9, step=1),))
    assert not consider(top, Kept(name="best", score=0.95, step=2)).save
    decision = consider(top, Kept(name="best-v1", score=0.5, step=2))
    assert decision.save
    assert decision.drop == ("best",)
    assert [kept.step for kept in decision.after.kept] == [2]


def verdicts(patience: Patience, values: list[float]) -> list[Verdict]:
    seen = []
    for value in values:
        patience, verdict = observe(patience, value)
        seen.append(verdict)
    return seen


@pytest.mark.parametrize(
    ("patience", "values", "expected"),
    [
        (Patience(patience=2), [1.0, 0.9, 0.9, 0.95], ["go on", "go on", "go on", "patience"]),
        (Patience(patience=2, mode="max"), [0.1, 0.2, 0.1, 0.3], ["go on"] * 4),
        (Patience(patience=0), [1.0, 1.0], ["go on", "patience"]),
        (Patience(patience=1, min_delta=0.1), [1.0, 0.95], ["go on", "patience"]),
        (Patience(patience=1, min_delta=0.1, mode="max"), [1.0, 1.2], ["go on", "go on"]),
        (Patience(), [math.nan], ["not finite"]),
        (Patience(check_finite=False, patience=1), [1.0, math.nan], ["go on", "patience"]),
        (Patience(stopping_threshold=0.1), [1.0, 0.05], ["go on", "reached"]),
        (Patience(divergence_threshold=5.0), [1.0, 6.0], ["go on", "diverged"]),
    ],
)
def test_patience(patience: Patience, values: list[float], expected: list[str]) -> None:
    assert [verdict.value for verdict in verdicts(patience, values)] == expected


def test_modes_and_comparisons() -> None:
    assert not better("max", math.nan, None)
    assert better("max", 1.0, math.nan)
    with pytest.raises(ConfigError, match="Did you mean 'max'"):
        check_mode("mx")
