"""Plans: properties that hold for every policy, and golden tables of whole runs."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from itertools import groupby
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core import planning
from lumen.core.cadence import Every, Unit
from lumen.core.planning import StepPlan, advance, plan_close, plan_step, resume, stop_reason
from lumen.core.policy import Policy, StopReason, Validation
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import NO_AGREED, Request, agree
from lumen_tests.core.simulate import Batch, lengths, letters, policies, simulate

sizes = st.lists(st.integers(1, 9), min_size=1, max_size=7).map(lambda of: lambda batch: of[batch % len(of)])
asked = st.dictionaries(
    st.integers(0, 30),
    st.lists(st.builds(Request, stop=st.booleans(), save=st.booleans()), min_size=1, max_size=3),
    max_size=3,
)
STEP = Every(1, Unit.STEP)


def windows(batches: list[Batch]) -> list[list[Batch]]:
    """The batches of each window that was closed."""
    found: list[list[Batch]] = [[]]
    for batch in batches:
        found[-1].append(batch)
        if batch.plan.optimizer_step:
            found.append([])
    return found[:-1]


# -- properties of any run --------------------------------------------------------------------------------------------


@given(policies(), lengths)
def test_the_weights_of_a_window_sum_to_one_a_short_last_one_included(policy: Policy, epochs: list[int]) -> None:
    for window in windows(simulate(policy, epochs)):
        rescale = window[-1].plan.grad_rescale
        assert math.isclose(sum(batch.plan.loss_weight * rescale for batch in window), 1.0, rel_tol=1e-12)
        assert len({batch.plan.loss_weight for batch in window}) == 1
        assert (rescale == 1.0) == (len(window) == policy.accumulate)
        assert len(window) == policy.accumulate or window[-1].plan.end_epoch


@given(policies(), lengths, asked)
def test_gradients_are_shared_where_and_only_where_the_optimizer_steps(
    policy: Policy, epochs: list[int], requests: Any
) -> None:
    for batch in simulate(policy, epochs, requests=requests):
        assert batch.plan.sync_grads == batch.plan.optimizer_step
        assert batch.plan.optimizer_step or batch.plan.grad_rescale == 1.0


@given(policies(), lengths, asked)
def test_all_that_is_due_is_due_where_the_window_is_empty(policy: Policy, epochs: list[int], requests: Any) -> None:
    for batch in simulate(policy, epochs, requests=requests):
        plan, progress = batch.plan, batch.state.progress
        due = (plan.log, plan.validate, plan.checkpoint, plan.agree, plan.scheduler_step, plan.end_epoch)
        if any(due) or batch.close.checkpoint or batch.close.stop is not None:
            assert plan.optimizer_step
            assert (progress.window, progress.window_samples) == (0, 0)


@given(policies(), lengths, asked)
def test_whatever_needs_all_ranks_comes_with_their_agreement(policy: Policy, epochs: list[int], requests: Any) -> None:
    for batch in simulate(policy, epochs, requests=requests):
        plan = batch.plan
        assert plan.agree or not (plan.log or plan.validate or plan.checkpoint or plan.end_epoch)


@given(policies(), lengths, sizes, st.sets(st.integers(1, 20)), asked)
def test_the_counters_count(policy: Policy, epochs: list[int], size: Any, refused: set[int], requests: Any) -> None:
    steps = 0
    run = simulate(policy, epochs, size=size, refused=refused, requests=requests)
    for done, batch in enumerate(run, start=1):
        progress = batch.state.progress
        steps += batch.plan.optimizer_step
        ended = sum(epochs[: progress.epoch])
        assert progress.batches == done == ended + progress.batch
        assert progress.step == steps
        assert progress.skipped == len([step for step in refused if step <= steps])
        assert progress.applied == steps - progress.skipped
        assert progress.samples == sum(size(b) for b in range(done))
        assert progress.consumed == sum(size(b) for b in range(ended, done))
        assert progress.window_samples == sum(size(b) for b in range(done - progress.window, done))
        assert 0 <= progress.window < policy.accumulate


@given(policies(), lengths, asked)
def test_a_run_ends_exactly_where_the_policy_says(policy: Policy, epochs: list[int], requests: Any) -> None:
    batches = simulate(policy, epochs, requests=requests)
    assert all(batch.close.stop is None for batch in batches[:-1])
    progress, stop = batches[-1].state.progress, batches[-1].close.stop
    most_steps = math.inf if policy.max_steps is None else policy.max_steps
    most_epochs = math.inf if policy.max_epochs is None else policy.max_epochs
    assert progress.step <= most_steps
    assert progress.epoch <= most_epochs
    if stop is StopReason.MAX_STEPS:
        assert progress.step == most_steps
    elif stop is StopReason.MAX_EPOCHS:
        assert (progress.epoch, progress.batch) == (most_epochs, 0)
    elif stop is StopReason.REQUEST:
        assert progress.step >= policy.min_steps
        assert progress.epoch >= policy.min_epochs
        assert any(request.stop for ranks in requests.values() for request in ranks)
    else:  # the data ended
        assert progress.epoch == len(epochs)
        assert progress.step < most_steps
        assert progress.epoch < most_epochs
    assert batches[-1].close.checkpoint or stop is None  # the last state is never lost


@given(policies(), lengths, sizes, st.sets(st.integers(1, 20)), asked)
def test_resume_is_a_suffix(policy: Policy, epochs: list[int], size: Any, refused: set[int], requests: Any) -> None:
    """From the state at any closed window the rest of the run is planned as if it had never stopped."""

    def run(state: TrainState | None = None) -> list[Batch]:
        clock = lambda batches: 0.75 * batches  # noqa: E731
        return simulate(policy, epochs, state, size=size, refused=refused, requests=requests, seconds=clock)

    whole = run()
    for index, batch in enumerate(whole):
        if batch.plan.optimizer_step and batch.state.asked == NO_AGREED:
            held = [number for number in requests if number <= index]
            if any(whole[number].plan.agree is False for number in held if number < len(whole)):
                continue  # a wish that no other rank knew of yet is lost with its process
            assert run(batch.state) == whole[index + 1 :]


@given(policies(), lengths)
def test_resuming_a_saved_state_changes_nothing_but_why_it_stopped(policy: Policy, epochs: list[int]) -> None:
    for batch in simulate(policy, epochs):
        if batch.plan.optimizer_step:
            again = resume(policy, batch.state)
            assert again.progress == batch.state.progress
            assert again.stopped == batch.state.stopped


def test_nothing_in_a_plan_knows_a_rank() -> None:
    for value in (StepPlan, planning.ClosePlan, Policy, Progress, TrainState):
        assert not [field.name for field in attrs.fields(value) if "rank" in field.name or "world" in field.name]
    for function in (plan_step, advance, plan_close, stop_reason, resume):
        assert not {"world", "rank"} & set(inspect.signature(function).parameters)
    assert "lumen.core.world" not in inspect.getsource(planning)


@given(policies(), lengths, asked, st.randoms(use_true_random=False))
def test_it_does_not_matter_which_rank_asks(policy: Policy, epochs: list[int], requests: Any, random: Any) -> None:
    shuffled = {number: random.sample(ranks, len(ranks)) for number, ranks in requests.items()}
    assert simulate(policy, epochs, requests=requests) == simulate(policy, epochs, requests=shuffled)


# -- intervals --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.sampled_from([Unit.STEP, Unit.BATCH, Unit.SAMPLE]), st.integers(1, 4), lengths, sizes)
def test_an_interval_fires_as_often_as_it_ends(
    n: int, unit: Unit, accumulate: int, epochs: list[int], size: Any
) -> None:
    """Once for each of its ends, but for those that share a window; never where none ended."""
    run = simulate(Policy(accumulate=accumulate, log=Every(n, unit)), epochs, size=size)
    before = 0
    for window in windows(run):
        progress = window[-1].state.progress
        now = {Unit.STEP: progress.step, Unit.BATCH: progress.batches, Unit.SAMPLE: progress.samples}[unit]
        assert window[-1].plan.log == (now // n > before // n)
        before = now
    if unit is Unit.STEP:
        assert sum(batch.plan.log for batch in run) == run[-1].state.progress.step // n


@given(st.integers(1, 4), st.integers(1, 5), lengths)
def test_whole_epochs_end_with_their_last_batch(n: int, accumulate: int, epochs: list[int]) -> None:
    run = simulate(Policy(accumulate=accumulate, log=Every(n, Unit.EPOCH)), epochs)
    found = [batch.state.progress.epoch for batch in run if batch.plan.log]
    assert found == [epoch for epoch in range(1, len(epochs) + 1) if epoch % n == 0]
    assert all(batch.plan.end_epoch for batch in run if batch.plan.log)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 3))
def test_a_share_of_an_epoch_fires_so_often_in_each(parts: int, length: int, epochs: int) -> None:
    every = Every(Fraction(1, parts), Unit.EPOCH)
    run = simulate(Policy(validate=Validation(every=every, nth_epoch=1)), [length] * epochs)
    for _, group in groupby(run, key=lambda batch: batch.state.progress.epoch - batch.plan.end_epoch):
        batches = list(group)
        assert sum(batch.plan.validate for batch in batches) == min(parts, length)
        assert batches[-1].plan.validate


@pytest.mark.parametrize(
    ("share", "length", "expected"),
    [
        (0.25, 10, [3, 5, 8, 10]),
        (0.5, 7, [4, 7]),
        (0.3, 10, [3, 6, 9]),
        (Fraction(1, 3), 10, [4, 7, 10]),
        (0.1, 10, list(range(1, 11))),
        (0.01, 3, [1, 2, 3]),
        (1, 4, [4]),
    ],
)
def test_validation_fractions_are_golden(share: Any, length: int, expected: list[int]) -> None:
    policy = Policy(validate=Validation(every=Every(share, Unit.EPOCH), nth_epoch=1))
    for epoch in simulate(policy, [length]), simulate(policy, [length, length])[length:]:
        assert [index + 1 for index, batch in enumerate(epoch) if batch.plan.validate] == expected


def test_validation_fractions_fire_where_their_window_closes() -> None:
    policy = Policy(accumulate=2, validate=Validation(every=Every(0.25, Unit.EPOCH), nth_epoch=1))  # type: ignore[arg-type]
    for length, expected in ((10, [4, 6, 8, 10]), (9, [4, 6, 8, 9])):
        run = simulate(policy, [length])
        assert [index + 1 for index, batch in enumerate(run) if batch.plan.validate] == expected


def test_validation_in_every_second_epoch_only() -> None:
    policy = Policy(validate=Validation(every=Every(2, Unit.BATCH), nth_epoch=2))
    run = simulate(policy, [5, 5, 5, 5])
    assert [index for index, batch in enumerate(run) if batch.plan.validate] == [6, 8, 16, 18]


def test_validation_across_epochs() -> None:
    run = simulate(Policy(validate=Validation(every=Every(4, Unit.BATCH))), [5, 5])
    assert [index + 1 for index, batch in enumerate(run) if batch.plan.validate] == [4, 8]


def test_a_share_that_is_counted_over_the_run_carries_over_into_the_next_epoch() -> None:
    run = simulate(Policy(log=Every(Fraction(3, 2), Unit.EPOCH)), [4, 4, 4])
    assert [index + 1 for index, batch in enumerate(run) if batch.plan.log] == [6, 12]


def test_a_time_fires_in_the_window_after_the_ranks_agreed_that_it_was_over() -> None:
    """The next batch's plan must be known before it, so the clock of the last agreement decides."""
    run = simulate(Policy(checkpoint=(Every(10, Unit.SECOND),), agree=STEP), [9], seconds=lambda batches: 4.0 * batches)
    assert [index + 1 for index, batch in enumerate(run) if batch.plan.checkpoint] == [4, 6, 9]


def test_a_time_that_was_over_before_a_window_of_several_batches_fires_where_it_closes() -> None:
    policy = Policy(accumulate=3, checkpoint=(Every(10, Unit.SECOND),), agree=STEP)
    run = simulate(policy, [15], seconds=lambda batches: 4.0 * batches)  # 12, 24, 36, 48 s at the agreements
    assert [index + 1 for index, batch in enumerate(run) if batch.plan.checkpoint] == [6, 9, 12, 15]


def test_a_share_without_a_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="epoch_batches"):
        plan_step(Policy(log=Every(Fraction(1, 2), Unit.EPOCH)), Progress(), last=False)


# -- requests ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3), st.integers(0, 12), st.integers(0, 20), st.integers(1, 4))
def test_a_stop_is_held_back_by_the_least_counts_and_honoured_later(
    min_epochs: int, min_steps: int, at: int, accumulate: int
) -> None:
    policy = Policy(min_epochs=min_epochs, min_steps=min_steps, accumulate=accumulate, agree=STEP)
    run = simulate(policy, [5] * 20, requests={at: [Request(), Request(stop=True, reason="enough")]})
    stopping = run[-1]
    assert stopping.close.stop is StopReason.REQUEST

    def ready(batch: Batch) -> bool:
        progress = batch.state.progress
        return batch.plan.optimizer_step and progress.epoch >= min_epochs and progress.step >= min_steps

    assert len(run) == next(index for index, batch in enumerate(run) if index >= at and ready(batch)) + 1
    first = next(index for index in range(at, len(run)) if run[index].plan.agree)
    for batch in run[first:-1]:
        assert batch.state.asked.stop
        assert batch.state.asked.reason == "enough"


def test_a_request_to_save_is_done_once_even_if_a_stop_still_waits() -> None:
    policy = Policy(min_steps=6, agree=STEP)
    run = simulate(policy, [10], requests={1: [Request(stop=True, save=True)]})
    assert letters(run) == "SA SAC SA SA SA SAC!"


def test_inside_a_window_a_request_waits_and_is_kept() -> None:
    policy, plan = Policy(accumulate=3), plan_step(Policy(accumulate=3), Progress(), last=False)
    wish = agree([Request(stop=True, save=True, reason="now")])
    close = plan_close(policy, advance(Progress(), plan, stepped=False), plan, wish)
    assert (close.checkpoint, close.stop, close.asked) == (False, None, wish)


def test_limits_do_not_wait_for_the_least_counts() -> None:
    assert stop_reason(Policy(max_steps=3, min_steps=9), Progress(step=3)) is StopReason.MAX_STEPS
    assert stop_reason(Policy(max_epochs=1, min_epochs=2), Progress(epoch=1)) is StopReason.MAX_EPOCHS


def test_a_raised_limit_reopens_a_run_that_had_ended() -> None:
    done = simulate(Policy(max_epochs=2, max_steps=100), [3, 3, 3, 3])[-1].state
    assert done.stopped is StopReason.MAX_EPOCHS
    policy = Policy(max_epochs=4, max_steps=100)
    state = resume(policy, done)
    assert state.stopped is None
    assert simulate(policy, [3, 3, 3, 3], state) == simulate(policy, [3, 3, 3, 3])[6:]


def test_a_lowered_limit_ends_a_run_where_it_stands() -> None:
    assert resume(Policy(max_steps=5), TrainState(progress=Progress(step=7))).stopped is StopReason.MAX_STEPS
    assert resume(Policy(max_epochs=0), TrainState()).stopped is StopReason.MAX_EPOCHS


def test_an_old_request_to_stop_is_forgotten() -> None:
    wish = agree([Request(stop=True)])
    saved = TrainState(progress=Progress(epoch=1, step=4), stopped=StopReason.REQUEST, asked=wish)
    assert resume(Policy(max_epochs=9), saved) == TrainState(progress=saved.progress)


# -- golden tables ----------------------------------------------------------------------------------------------------
# S optimizer step, r scheduler, L log, V validate, E end of epoch, A agree, C checkpoint, ! stop, "." only gradients


@pytest.mark.parametrize(
    ("policy", "epochs", "expected"),
    [
        (Policy(max_epochs=2), [3, 3], "S S SEA S S SEAC!"),
        (Policy(max_epochs=1, accumulate=3), [7], ". . S . . S SEAC!"),
        (Policy(max_steps=3, accumulate=2), [3, 3], ". S SEA . SC!"),
        (Policy(max_epochs=1, accumulate=9), [4], ". . . SEAC!"),
        (Policy(log=Every(2, Unit.STEP), max_epochs=1), [5], "S SLA S SLA SEAC!"),
        (Policy(log=Every(2, Unit.STEP), max_epochs=2, accumulate=2), [3, 3], ". S SLEA . S SLEAC!"),
        (Policy(log=Every(3, Unit.BATCH), max_epochs=1, accumulate=2), [8], ". S . SLA . SLA . SEAC!"),
        (
            Policy(validate=Validation(every=Every(1, Unit.EPOCH)), checkpoint_on_validation=True, max_epochs=2),
            [2, 2],
            "S SVEAC S SVEAC!",
        ),
        (
            Policy(
                validate=Validation(every=Every(Fraction(1, 2), Unit.EPOCH), nth_epoch=2),
                checkpoint=(Every(1, Unit.EPOCH), Every(4, Unit.STEP)),
                max_epochs=3,
            ),
            [4, 4, 4],
            "S S S SEAC S SVA S SVEAC S S S SEAC!",
        ),
        (Policy(schedule=Every(1, Unit.STEP), accumulate=2, max_epochs=1), [5], ". Sr . Sr SrEAC!"),
        (Policy(schedule=Every(1, Unit.EPOCH), max_epochs=2), [2, 2], "S SrEA S SrEAC!"),
        (Policy(agree=Every(2, Unit.STEP), max_steps=5), [9], "S SA S SA SC!"),
        (Policy(log=Every(10, Unit.SAMPLE), max_epochs=1), [6], "S S SLA S SLA SEAC!"),
        (Policy(), [2, 1], "S SEA SEA"),
    ],
)
def test_whole_runs_are_golden(policy: Policy, epochs: list[int], expected: str) -> None:
    assert letters(simulate(policy, epochs)) == expected
