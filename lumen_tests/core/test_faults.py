"""Faults: which failure was the first, whether to start again, and how it is told."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.faults import (
    Failure,
    Position,
    describe_stands,
    first_failure,
    from_message,
    restart_refusal,
    to_message,
)

KINDS = ("error", "exit", "lost", "hang", "connect", "interrupt", "peer")
positions = st.builds(
    Position,
    stage=st.sampled_from(["", "fit", "validate"]),
    epoch=st.integers(0, 3),
    batch=st.integers(0, 3),
    step=st.integers(0, 9),
    hook=st.sampled_from(["", "training_step"]),
)
failures = st.builds(
    Failure,
    rank=st.integers(0, 3),
    kind=st.sampled_from(KINDS),
    message=st.sampled_from(["", "ValueError: a", "OSError: b"]),
    traceback=st.sampled_from(["", "Traceback ...\nValueError: a\n"]),
    position=positions,
    time=st.integers(0, 20).map(float),
)
several = st.lists(failures, max_size=6)


def failed(rank: int, kind: str, time: float = 0.0, message: str = "", step: int = 0) -> Failure:
    return Failure(rank=rank, kind=kind, time=time, message=message, position=Position(step=step))


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position(), "outside of a run"),
        (Position(hook="setup"), "in setup"),
        (Position(stage="fit", step=7), "fit, epoch 0, batch 0, step 7"),
        (Position(stage="test", epoch=1, batch=2, hook="test_step"), "test, epoch 1, batch 2, step 0, in test_step"),
        (Position(epoch=4, batch=3, step=2), "outside of a run"),
    ],
)
def test_a_position_in_words(position: Position, text: str) -> None:
    assert str(position) == text


@given(failures)
def test_a_failure_arrives_as_it_was_sent(failure: Failure) -> None:
    assert from_message(json.loads(json.dumps(to_message(failure)))) == failure


@given(failures)
def test_its_words_are_the_traceback_else_the_message(failure: Failure) -> None:
    assert failure.words == (failure.traceback.rstrip() if failure.traceback else failure.message)


@pytest.mark.parametrize(
    ("found", "first"),
    [
        ([], None),
        ([failed(0, "peer", 1)], 0),
        ([failed(0, "peer", 1), failed(1, "error", 2)], 1),
        ([failed(1, "error", 2), failed(0, "error", 1)], 0),
        ([failed(0, "peer", 1), failed(1, "lost", 9)], 1),
        ([failed(0, "lost", 1), failed(1, "error", 2)], 0),  # it died before, and nobody else's words explain that
        ([failed(1, "lost", 1), failed(1, "exit", 2), failed(0, "error", 3)], 1),
        (
            [failed(1, "lost", 1), failed(0, "error", 2), failed(1, "error", 3)],
            0,
        ),  # the loss is the end after its words
        ([failed(0, "peer", 2), failed(1, "peer", 1)], 1),
        ([failed(-1, "interrupt", 1), failed(0, "error", 2)], -1),
    ],
)
def test_which_came_first(found: list[Failure], first: int | None) -> None:
    failure = first_failure(found)
    assert (failure and failure.rank) == first
    assert (
        failure is None
        or failure.kind != "lost"
        or not any(one.rank == failure.rank and one.kind not in ("lost", "peer") for one in found)
    )


@given(several, st.randoms())
def test_the_first_failure_does_not_depend_on_the_order_of_the_news(found: list[Failure], random: object) -> None:
    found = [attrs.evolve(one, time=float(number)) for number, one in enumerate(found)]
    mixed = list(found)
    random.shuffle(mixed)
    assert first_failure(mixed) == first_failure(found)


@given(several)
def test_the_first_failure_is_one_of_them_and_follows_from_no_other(found: list[Failure]) -> None:
    first = first_failure(found)
    if first is None:
        assert not found
        return
    assert first in found
    assert first.kind != "peer" or all(one.kind == "peer" for one in found)
    assert not any(one.kind not in ("peer", "lost") and one.time < first.time for one in found)


SAME = failed(1, "error", message="ValueError: a", step=13)


@pytest.mark.parametrize(
    ("history", "limit", "refusal"),
    [
        ([failed(1, "lost")], 0, "max_restarts is 0"),
        ([SAME], 0, "max_restarts is 0"),
        ([failed(1, "lost")], 1, ""),
        ([failed(1, "lost")] * 2, 1, "max_restarts=1"),
        ([failed(1, "lost")] * 2, 2, ""),
        ([failed(1, "hang", message="no progress", step=3)] * 2, 2, ""),
        ([SAME], 5, ""),
        ([SAME] * 2, 5, "the same error at the same step twice"),
        ([SAME] * 2, 1, "the same error at the same step twice"),
        ([SAME, attrs.evolve(SAME, rank=0)], 5, "the same error at the same step twice"),
        ([SAME, attrs.evolve(SAME, message="ValueError: b")], 5, ""),
        ([SAME, attrs.evolve(SAME, position=Position(step=14))], 5, ""),
        ([SAME, failed(1, "lost"), SAME], 5, ""),
        ([failed(1, "exit", message="SystemExit: 1")] * 2, 5, ""),
        ([failed(-1, "interrupt")], 5, "it was interrupted"),
        ([failed(-1, "interrupt")], 0, "it was interrupted"),
        ([failed(-1, "interrupt"), failed(1, "lost")], 5, ""),
    ],
)
def test_whether_to_start_again(history: list[Failure], limit: int, refusal: str) -> None:
    assert restart_refusal(history, limit) == refusal


@given(st.lists(failures, min_size=1, max_size=6), st.integers(0, 4))
def test_never_more_restarts_than_asked_for(history: list[Failure], limit: int) -> None:
    if len(history) > limit or history[-1].kind == "interrupt":
        assert restart_refusal(history, limit)
    if restart_refusal(history, limit):
        assert (
            len(history) > limit or history[-1].kind == "interrupt" or history[-1].kind == history[-2].kind == "error"
        )


@given(st.dictionaries(st.integers(0, 8), st.tuples(st.sampled_from("abc"), st.sampled_from(["", "s\n", "s\nt"]))))
def test_every_rank_stands_in_one_line_with_those_of_the_same_place(stands: dict[int, tuple[str, str]]) -> None:
    lines = describe_stands(stands)
    heads = [line for line in lines if line.startswith("lumen: rank")]
    assert len(heads) == len(set(stands.values()))
    named: dict[int, str] = {}
    for head in heads:
        ranks, _, where = head.removeprefix("lumen: rank").removeprefix("s").partition(":")
        named |= dict.fromkeys(map(int, ranks.split(",")), where.strip())
    assert named == {rank: where for rank, (where, _) in stands.items()}
    assert len(lines) - len(heads) == sum(len(stack.splitlines()) for _, stack in set(stands.values()))
