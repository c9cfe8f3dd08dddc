"""The roll of the ranks, by the messages it takes and gives; its clock is the test's."""

from __future__ import annotations

import signal
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.faults import Failure, Position, from_message, to_message
from lumen.shell.ranks.roll import MEET, WATCH, Roll

TRAINING = Position(stage="fit", epoch=1, batch=2, step=10)
STACK = '  File "/home/user/train.py", line 3, in training_step\n    wait()\n'
COLLECTIVE = '  File "/lib/paddle/distributed/communication/all_reduce.py", line 9, in all_reduce\n    task.wait()\n'


class Job:
    """Ranks that send what they are told to, and keep what they are sent."""

    def __init__(self, size: int, *, hang_timeout: float | None = None, inside: bool = True) -> None:
        self.roll, self.now, self.size = Roll(size, 100.0), 100.0, size
        self.meetings = [0] * size
        if inside:
            for rank in range(size):
                self.enter(rank, hang_timeout=hang_timeout)

    def say(self, rank: int, do: str, body: bytes = b"", **fields: Any) -> None:
        self.roll.take(rank, {"do": do, **fields}, body, self.now)

    def enter(self, rank: int, *, session: int = 1, hang_timeout: float | None = None) -> None:
        self.say(rank, "enter", session=session, hang_timeout=hang_timeout)

    def meet(self, rank: int, kind: str = "loss", body: bytes = b"") -> None:
        self.meetings[rank] += 1
        self.say(rank, "meet", body, kind=kind, number=self.meetings[rank])

    def fail(self, rank: int, kind: Any = "error", message: str = "ValueError: bad", **fields: Any) -> None:
        failure = Failure(rank=rank, kind=kind, message=message, **{"position": TRAINING, **fields})
        self.say(rank, "fail", failure=to_message(failure))

    def beat(self, rank: int, *, idle: float = 0.0, position: Position = TRAINING) -> None:
        self.say(rank, "beat", position=attrs.asdict(position), idle=idle)

    def stack(self, rank: int, text: str = STACK) -> None:
        self.say(rank, "stack", position=attrs.asdict(TRAINING), stack=text)

    def wait(self, seconds: float, *speaking: int, idle: bool = True) -> None:
        """Time goes by in tenths; who speaks does so each second, and got on only if not `idle`."""
        began = self.now
        while self.now < began + seconds:
            self.now = round(self.now + 0.1, 1)
            for rank in speaking if round(self.now * 10) % 10 == 0 else ():
                self.beat(rank, idle=self.now - began if idle else 0.0)
            self.roll.tick(self.now)

    def sent(self, rank: int, channel: str) -> list[dict[str, Any]]:
        """What was sent to a rank; forgets it."""
        found = [header for to, on, (header, _) in self.roll.outbox if (to, on) == (rank, channel)]
        self.roll.outbox = [one for one in self.roll.outbox if one[:2] != (rank, channel)]
        return [header for header in found if header["what"] != "ping"]


# -- meetings -------------------------------------------------------------------------------------------------------


@given(st.permutations(range(4)), st.lists(st.binary(max_size=4), min_size=4, max_size=4))
def test_all_are_answered_with_the_values_in_the_order_of_the_ranks_once_the_last_has_come(
    order: list[int], bodies: list[bytes]
) -> None:
    job = Job(4)
    for rank in order[:-1]:
        job.meet(rank, "loss", bodies[rank])
    assert not job.roll.outbox
    job.meet(order[-1], "loss", bodies[order[-1]])
    assert sorted(rank for rank, _, _ in job.roll.outbox) == [0, 1, 2, 3]
    for _, channel, (header, body) in job.roll.outbox:
        assert (channel, header["what"], header["number"]) == (MEET, "met", 1)
        assert header["sizes"] == [len(one) for one in bodies]
        assert body == b"".join(bodies)


def test_each_meeting_is_answered_by_its_own_number() -> None:
    job = Job(2)
    for number in (1, 2, 3):
        job.meet(0)
        job.meet(1)
        assert [job.sent(rank, MEET)[0]["number"] for rank in (0, 1)] == [number] * 2


def test_ranks_that_come_for_different_things_are_told_so_before_the_last_has_come() -> None:
    job = Job(3)
    job.meet(2, "loss")
    job.meet(0, "save")
    (told,), (told_too,) = job.sent(0, MEET), job.sent(2, MEET)
    assert told["what"] == told_too["what"] == "apart"
    assert told["kinds"] == [(0, "save"), (2, "loss")]
    assert not job.roll.outbox
    for rank in range(3):  # nobody waits any more
        job.meet(rank, "loss")
    assert [job.sent(rank, MEET)[0]["what"] for rank in range(3)] == ["met"] * 3


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_failure_releases_those_that_wait_and_whoever_comes_later() -> None:
    job = Job(3)
    job.meet(0)
    job.fail(1)
    job.meet(2)
    for rank in (0, 2):
        (told,) = job.sent(rank, MEET)
        assert told["what"] == "over"
        assert from_message(told["failure"]) == job.roll.first
    assert not job.sent(1, MEET)


def test_a_failure_has_the_time_at_which_it_came() -> None:
    job = Job(2)
    job.now = 123.0
    job.fail(1, time=5.0)
    assert job.roll.first is not None
    assert job.roll.first.time == 123.0


def test_ranks_are_asked_where_they_stand_and_told_to_give_up_once_all_have_said_so() -> None:
    job = Job(3)
    job.fail(1)
    assert [job.sent(rank, WATCH) for rank in range(3)] == [[{"what": "stack?"}], [], [{"what": "stack?"}]]
    job.stack(0)
    job.wait(0.1)
    assert not job.sent(0, WATCH)
    job.stack(2)
    job.wait(0.1)
    told = [job.sent(rank, WATCH) for rank in range(3)]
    assert [[one["what"] for one in each] for each in told] == [["over"], [], ["over"]]
    job.fail(2, "peer", "RankError: rank 1 has failed")
    job.stack(0)
    job.wait(5.0)
    told = [job.sent(rank, WATCH) for rank in range(3)]
    assert [[one["what"] for one in each] for each in told] == [["stack?"], [], []]  # once is enough


def test_ranks_that_have_failed_too_need_not_be_told() -> None:
    job = Job(2)
    job.meet(0)
    job.fail(1)
    job.fail(0, "peer", "RankError: rank 1 has failed")
    job.sent(0, WATCH)
    job.wait(5.0)
    assert not job.sent(0, WATCH)


def test_one_that_fails_while_it_waits_is_given_no_answer() -> None:
    job = Job(2)
    job.meet(0)
    job.fail(0)
    assert not job.sent(0, MEET)


def test_a_rank_that_does_not_say_where_it_stands_holds_nobody_up_for_long() -> None:
    job = Job(2)
    job.fail(1)
    job.wait(1.9)
    assert [one["what"] for one in job.sent(0, WATCH)] == ["stack?"]
    job.wait(0.3)
    assert [one["what"] for one in job.sent(0, WATCH)] == ["over"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_another_ranks_end_caused_is_not_first_whichever_is_heard_of_first(order: tuple[int, int]) -> None:
    job = Job(2)
    for rank in order:
        job.fail(rank, "peer" if rank == 0 else "error", f"of rank {rank}")
    assert job.roll.first is not None
    assert job.roll.first.rank == 1
    assert job.roll.report().splitlines()[0] == f"lumen: rank 0: {TRAINING}: of rank 0"
    assert job.roll.report().endswith(f"lumen: rank 1 failed first, in {TRAINING}:\nof rank 1\n")


def test_failures_are_those_of_the_present_run_alone() -> None:
    job = Job(2)
    job.fail(1)
    assert job.roll.report()
    job.stack(0)
    job.wait(3.0)
    for rank in (0, 1):
        job.enter(rank, session=2)
    assert job.roll.first is None
    assert not job.roll.report()
    job.meet(0)
    job.meet(1)
    assert job.sent(0, MEET)[-1]["what"] == "met"
    job.sent(0, WATCH)
    job.fail(1)
    job.wait(1.0)  # its stack of the run before is no answer
    assert [one["what"] for one in job.sent(0, WATCH)] == ["stack?"]
    job.wait(2.0)
    assert [one["what"] for one in job.sent(0, WATCH)] == ["over"]


def test_a_rank_in_the_next_run_does_not_meet_one_that_failed_in_it() -> None:
    job = Job(2)
    job.fail(1)
    job.enter(0, session=2)  # it survived its peer's failure; the other is still in the first run
    job.meet(0)
    assert not job.sent(0, MEET)
    job.enter(1, session=2)
    job.meet(1)
    assert job.sent(0, MEET)[0]["what"] == "met"


# -- the end of a process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (7, "exit", "ended with exit code 7"),
        (0, "lost", "ended with exit code 0 while the others went on"),
        (-signal.SIGKILL, "lost", "was ended by SIGKILL"),
        (-signal.SIGABRT, "lost", "was ended by SIGABRT"),
    ],
)
def test_a_process_that_ends_inside_of_a_run_fails_it(code: int, kind: str, message: str) -> None:
    job = Job(2)
    job.meet(0)
    job.roll.ended(1, code, "its last words", job.now)
    first = job.roll.first
    assert first is not None
    assert (first.rank, first.kind, first.message) == (1, kind, message)
    assert first.traceback == ("its last words" if code else "")
    assert job.roll.doomed
    assert job.sent(0, MEET)[0]["what"] == "over"
    assert f"lumen: rank 1 failed first: it {message}\n" in job.roll.report()


def test_the_lines_end_and_the_processs_end_are_one_failure() -> None:
    job = Job(2)
    job.roll.lost(1, job.now)
    job.roll.lost(1, job.now)
    assert [failure.message for failure in job.roll.failures] == ["it died without a word"]
    job.roll.ended(1, -9, "", job.now)
    assert [failure.message for failure in job.roll.failures] == ["was ended by SIGKILL"]


def test_one_that_gloo_aborts_after_the_end_of_another_is_not_first() -> None:
    job = Job(2)
    job.roll.ended(0, -signal.SIGKILL, "", job.now)
    job.roll.ended(1, -signal.SIGABRT, "", job.now)
    assert job.roll.first is not None
    assert (job.roll.first.rank, [one.kind for one in job.roll.failures]) == (0, ["lost", "peer"])


def test_a_rank_that_said_why_keeps_its_words_when_its_process_ends() -> None:
    job = Job(2)
    job.fail(1, message="ValueError: bad")
    job.roll.ended(1, 1, "other words", job.now)
    assert [failure.message for failure in job.roll.failures] == ["ValueError: bad"]


@pytest.mark.parametrize(("code", "failures"), [(0, 0), (3, 1)])
def test_after_its_run_a_process_may_end_but_only_well(code: int, failures: int) -> None:
    job = Job(2)
    for rank in (0, 1):
        job.say(rank, "leave")
    job.roll.ended(1, code, "", job.now)
    assert len(job.roll.failures) == failures
    assert job.roll.doomed == bool(failures)


def test_one_that_has_left_and_ended_well_is_missed_by_those_that_wait_for_it() -> None:
    job = Job(2)
    job.say(1, "leave")
    job.roll.ended(1, 0, "", job.now)
    assert not job.roll.doomed
    job.meet(0)
    assert job.sent(0, MEET)[0]["what"] == "over"
    assert job.roll.doomed


# -- standing still -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guilty", [1, 2])
def test_a_rank_that_keeps_the_others_waiting_is_found_and_named_with_its_stack(guilty: int) -> None:
    job = Job(3, hang_timeout=5.0)
    job.meet(0)
    job.wait(5.5, 0, 1, 2)
    assert [[one["what"] for one in job.sent(rank, WATCH)] for rank in range(3)] == [["stack?"]] * 3
    job.stack(0)
    job.stack(guilty)
    job.stack(3 - guilty, COLLECTIVE)
    job.wait(0.2)
    first = job.roll.first
    assert first is not None
    assert (first.rank, first.kind, first.position) == (guilty, "hang", TRAINING)
    assert "it stands still (hang_timeout=5 s)" in first.message
    assert first.traceback.endswith(STACK)
    assert job.roll.doomed
    assert job.sent(0, MEET)[0]["what"] == "over"
    assert job.roll.beyond_help(job.now) == set()


def test_one_that_says_nothing_is_the_suspect_before_all_others_and_beyond_help() -> None:
    job = Job(3, hang_timeout=5.0)
    job.wait(8.0, 0, 1)
    first = job.roll.first
    assert first is not None
    assert (first.rank, first.kind) == (2, "hang")
    assert "it does not answer" in first.message
    assert job.roll.beyond_help(job.now) == {2}


@pytest.mark.parametrize("why", ["they get on", "no limit", "they have left"])
def test_no_standstill_is_found_where_there_is_none(why: str) -> None:
    job = Job(2, hang_timeout=None if why == "no limit" else 5.0)
    for rank in (0, 1) if why == "they have left" else ():
        job.say(rank, "leave")
    job.wait(12.0, 0, 1, idle=why != "they get on")
    assert not job.roll.failures


def test_progress_while_the_stacks_are_asked_for_is_no_standstill() -> None:
    job = Job(2, hang_timeout=5.0)
    job.wait(5.5, 0, 1)
    for rank in (0, 1):
        job.beat(rank)
        job.stack(rank)
    job.wait(0.3)
    assert job.roll.first is None
    job.wait(3.0, 0, 1)
    assert job.roll.first is None


def test_a_rank_that_never_came_is_named() -> None:
    job = Job(2, inside=False)
    job.wait(20.0)
    job.enter(0, hang_timeout=5.0)
    job.wait(4.0, 0)
    assert job.roll.first is None  # the time that it has began with the first
    job.wait(6.0, 0, idle=False)
    assert job.roll.first is not None
    assert job.roll.first.rank == 1
    assert "it never came to the others" in job.roll.first.message


def test_a_coordinator_that_was_stopped_blames_nobody() -> None:
    job = Job(2, hang_timeout=5.0)
    job.wait(2.0, 0, 1, idle=False)
    job.now += 60.0  # Ctrl-Z
    job.roll.tick(job.now)
    assert not job.sent(0, WATCH)
    job.wait(3.0, 0, 1, idle=False)
    assert job.roll.first is None


# -- leaving --------------------------------------------------------------------------------------------------------


def test_a_rank_that_failed_learns_the_verdict_once_the_others_hooks_were_called() -> None:
    job = Job(2)
    job.fail(1)
    job.say(1, "settle")
    job.stack(0)
    job.wait(1.0)
    assert not job.sent(1, MEET)
    job.fail(0, "peer", "RankError: rank 1 has failed")
    job.say(0, "settle")
    job.wait(0.3)
    for rank in (0, 1):
        (told,) = job.sent(rank, MEET)
        assert told["what"] == "settled"
        assert told["text"] == job.roll.report()
        assert told["text"].endswith("ValueError: bad\n")
    job.wait(1.0)
    assert not job.sent(1, MEET)


@pytest.mark.parametrize("how", ["leave", "end"])
def test_the_verdict_waits_for_nobody_who_has_gone(how: str) -> None:
    job = Job(2)
    job.fail(1)
    job.say(1, "settle")
    if how == "leave":
        job.say(0, "leave")
    else:
        job.roll.ended(0, 1, "", job.now)
    job.wait(2.5)
    assert [one["what"] for one in job.sent(1, MEET)] == ["settled"]


def test_a_declared_end_reaches_every_rank_and_is_told_without_a_rank() -> None:
    job = Job(2)
    job.meet(0)
    job.roll.declare(Failure(rank=-1, kind="interrupt", message="lumen: interrupted"), job.now)
    assert job.sent(0, MEET)[0]["what"] == "over"
    assert [[one["what"] for one in job.sent(rank, WATCH)] for rank in (0, 1)] == [["stack?", "over"]] * 2
    assert job.roll.doomed
    assert job.roll.report().endswith("\nlumen: interrupted\n")


def test_checkpoints_are_kept_by_the_number_of_the_fit_the_newest_alone() -> None:
    job = Job(2)
    for fit, path in ((0, "a"), (0, "b"), (1, "c")):
        job.say(0, "saved", fit=fit, path=path)
    assert job.roll.saved == {0: "b", 1: "c"}


def test_each_rank_is_pinged_about_each_second() -> None:
    job = Job(2)
    job.wait(10.0)
    pings = [rank for rank, channel, (header, _) in job.roll.outbox if (channel, header) == (WATCH, {"what": "ping"})]
    assert 8 <= pings.count(0) == pings.count(1) <= 10
