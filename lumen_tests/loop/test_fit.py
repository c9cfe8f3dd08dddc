"""The training loop over a fake runtime: order of effects, cost, requests, several ranks."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest

from lumen.callbacks.base import HOOKS
from lumen.core.cadence import Every, Unit
from lumen.core.policy import Policy, StopReason, Validation
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import Request
from lumen.core.world import World
from lumen.errors import DataError, WorldError
from lumen.loop.run import Run
from lumen.testing import FakeRuntime, Group, run_fit, run_ranks

STEP = Every(1, Unit.STEP)


def record(names: list[str], into: list[str]) -> dict[str, list[Any]]:
    return {name: [lambda *_, name=name: into.append(name)] for name in names}


def test_hook_order_of_a_fit_with_accumulation_and_validation_is_golden() -> None:
    seen: list[str] = []
    runtime = FakeRuntime([1, 2, 3], evaluation=[[7]])
    policy = Policy(
        max_epochs=1,
        accumulate=2,
        validate=Validation(every=Every(1, Unit.EPOCH)),
        checkpoint=(Every(1, Unit.STEP),),
        agree=STEP,
    )
    run_fit(runtime, policy, hooks=record(list(HOOKS), seen))
    batch = ["on_train_batch_start", "on_before_backward", "on_after_backward"]
    step = ["on_before_optimizer_step", "on_before_zero_grad"]
    assert seen == [
        "on_train_start",
        "on_train_epoch_start",
        *batch,
        "on_train_batch_end",
        *batch,
        *step,
        "on_train_batch_end",
        "on_checkpoint",
        *batch,
        *step,
        "on_train_batch_end",
        "on_validation_start",
        "on_validation_epoch_start",
        "on_validation_batch_start",
        "on_validation_batch_end",
        "on_validation_epoch_end",
        "on_validation_end",
        "on_train_epoch_end",
        "on_train_epoch_logged",
        "on_checkpoint",
        "on_train_end",
    ]


def test_a_short_last_window_weighs_as_much_as_a_full_one() -> None:
    runtime = FakeRuntime([1, 2, 3, 4, 5, 6, 7])
    run_fit(runtime, Policy(max_epochs=1, accumulate=3))
    weights = [call[2] for call in runtime.calls if call[0] == "forward"]
    rescales = [call[1] for call in runtime.calls if call[0] == "step"]
    assert weights == [pytest.approx(1 / 3)] * 7
    assert rescales == [1.0, 1.0, 3.0]


def test_a_plain_step_costs_no_read_no_collective_and_no_hook() -> None:
    runtime = FakeRuntime(list(range(1000)))
    policy = Policy(max_steps=900, log=Every(100_000, Unit.STEP), agree=STEP)

    def log_each_step(run: Run) -> None:
        forward = runtime.forward_backward

        def logging(batch: Any, batch_idx: int, plan: Any) -> Any:
            run.logbook.log("loss", 1.0)
            return forward(batch, batch_idx, plan)

        runtime.forward_backward = logging  # type: ignore[method-assign]

    run = run_fit(runtime, policy, prepare=log_each_step)
    assert run.progress.step == 900
    assert (runtime.counts["read"], runtime.counts["gather"]) == (0, 0)
    assert [name for name, *_ in runtime.calls if name not in ("forward", "step", "epoch")] == []


def test_a_skipped_step_moves_no_step_scheduler_and_counts_as_skipped() -> None:
    runtime = FakeRuntime([1] * 6, refuse=[2, 5])
    run = run_fit(runtime, Policy(max_epochs=1, schedule=STEP))
    assert runtime.counts["schedule"] == 4
    assert (run.progress.step, run.progress.skipped, run.progress.applied) == (6, 2, 4)


def test_an_epoch_scheduler_moves_at_the_epochs_end_even_if_the_last_step_was_skipped() -> None:
    runtime = FakeRuntime([1] * 3, refuse=[3])
    run_fit(runtime, Policy(max_epochs=1, schedule=Every(1, Unit.EPOCH)))
    assert runtime.counts["schedule"] == 1


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_resuming_after_any_step_gives_the_same_batches_as_not_stopping(accumulate: int) -> None:
    policy = Policy(max_epochs=2, accumulate=accumulate, log=Every(2, Unit.STEP), agree=STEP)
    states: list[TrainState] = []

    def trained(runtime: FakeRuntime) -> list[tuple[Any, ...]]:
        return [call for call in runtime.calls if call[0] in ("forward", "step")]

    whole = FakeRuntime([1, 2, 3, 4, 5, 6, 7])
    marks: list[int] = []

    def prepare(run: Run) -> None:
        def mark(*_: Any) -> None:
            if run.progress.window == 0:
                states.append(run.state)
                marks.append(len(trained(whole)))

        run.hooks["on_train_batch_end"] = (mark,)  # type: ignore[index]

    run_fit(whole, policy, prepare=prepare)
    assert len(states) == 2 * -(-7 // accumulate)
    for state, mark in zip(states[:-1], marks[:-1], strict=True):
        rest = FakeRuntime([1, 2, 3, 4, 5, 6, 7])
        run = run_fit(rest, policy, state=state)
        assert trained(rest) == trained(whole)[mark:]
        assert run.stopped is StopReason.MAX_EPOCHS


def test_a_request_of_one_rank_stops_all_ranks_at_the_same_step() -> None:
    policy = Policy(max_epochs=5, log=Every(3, Unit.STEP), accumulate=2)

    def work(world: World, group: Group) -> Progress:
        runtime = FakeRuntime(list(range(10)), world=world, group=group)

        def prepare(run: Run) -> None:
            def ask(*_: Any) -> None:
                if world.rank == 1 and run.progress.batches == 3:  # inside a window
                    run.ask(Request(stop=True, save=True, reason="enough"))

            run.hooks["on_train_batch_end"] = (ask,)  # type: ignore[index]

        run = run_fit(runtime, policy, prepare=prepare)
        assert run.stopped is StopReason.REQUEST
        assert run.reason == "enough"
        return run.progress

    first, second = run_ranks(2, work)
    assert first == second
    assert first.step == 3  # the ranks next share at the log point of step 3


def test_ranks_that_disagree_fail_with_an_error_instead_of_hanging() -> None:
    def work(world: World, group: Group) -> None:
        batches = list(range(4 + 2 * world.rank))
        run_fit(FakeRuntime(batches, world=world, group=group), Policy(max_epochs=2, log=Every(5, Unit.STEP)))

    with pytest.raises(WorldError, match="'epoch values' on rank 0 and 'requests' on rank 1"):
        run_ranks(2, work, timeout=1.0)


def test_a_stop_waits_for_the_minimum_of_epochs_and_is_then_honoured() -> None:
    runtime = FakeRuntime([1, 2, 3])
    policy = Policy(max_epochs=9, min_epochs=2, agree=STEP)

    def prepare(run: Run) -> None:
        run.hooks["on_train_start"] = (lambda: run.ask(Request(stop=True, reason="early")),)  # type: ignore[index]

    run = run_fit(runtime, policy, prepare=prepare)
    assert run.progress.epoch == 2
    assert run.stopped is StopReason.REQUEST


def test_validation_four_times_an_epoch_of_ten_batches() -> None:
    runtime = FakeRuntime(list(range(10)), evaluation=[["v"]])
    policy = Policy(max_epochs=1, validate=Validation(every=Every(Fraction(1, 4), Unit.EPOCH), nth_epoch=1))
    run_fit(runtime, policy)
    trained = 0
    at: list[int] = []
    for name, *_ in runtime.calls:
        trained += name == "forward"
        if name == "eval":
            at.append(trained)
    assert at == [3, 5, 8, 10]


def test_an_empty_epoch_is_an_error_that_says_where() -> None:
    with pytest.raises(DataError, match="no batch in epoch 0"):
        run_fit(FakeRuntime([]), Policy(max_epochs=1))


def test_a_users_stop_iteration_is_not_swallowed() -> None:
    def raising(_: Any) -> Any:
        raise StopIteration

    with pytest.raises(StopIteration):
        run_fit(FakeRuntime([1, 2], loss=raising), Policy(max_epochs=1))


def test_seconds_are_agreed_and_trigger_checkpoints() -> None:
    runtime = FakeRuntime(list(range(40)), tick=1.0)
    seen: list[float] = []

    def prepare(run: Run) -> None:
        run.hooks["on_checkpoint"] = (lambda: seen.append(run.progress.seconds),)  # type: ignore[index]

    run_fit(runtime, Policy(max_epochs=1, checkpoint=(Every(10, Unit.SECOND),), agree=STEP), prepare=prepare)
    assert len(seen) >= 4
    assert all(later - earlier >= 9 for earlier, later in itertools.pairwise(seen[:-1]))
