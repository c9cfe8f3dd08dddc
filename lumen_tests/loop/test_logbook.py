"""self.log: defaults by place, weights, merging over ranks, carrying over a resume."""

from __future__ import annotations

from typing import Any

import pytest

from lumen.core.cadence import Every, Unit
from lumen.core.policy import Policy, Validation
from lumen.core.world import World
from lumen.errors import ConfigError, DataError
from lumen.loop.evaluating import evaluate
from lumen.loop.logbook import Logbook, Scope
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.testing import FakeRuntime, Group, run_fit, run_ranks


def book(scope: Scope, **options: Any) -> tuple[Logbook, FakeRuntime]:
    runtime = FakeRuntime([])
    logbook = Logbook(runtime, **options)
    if scope is Scope.EVAL:
        logbook.begin_eval()
    logbook.scope = scope
    return logbook, runtime


def test_an_epoch_mean_is_weighted_by_samples() -> None:
    logbook, _ = book(Scope.EVAL)
    for batch, value in (([0] * 3, 1.0), ([0], 5.0)):
        logbook.begin_batch(batch)
        logbook.log("acc", value)
    assert logbook.close(evaluation=True) == {"acc": 2.0}
    assert logbook.callback == {"acc": 2.0}


def test_a_step_value_is_the_mean_over_its_window() -> None:
    logbook, runtime = book(Scope.TRAIN_BATCH)
    for value, opens in ((9.0, True), (1.0, True), (2.0, False), (6.0, False)):
        logbook.begin_batch([0], opens_window=opens)
        logbook.log("loss", value)
    assert runtime.counts["read"] == 0
    assert logbook.merge_steps([logbook.step_table()]) == {"loss": 3.0}


def test_both_places_give_both_names() -> None:
    logbook, _ = book(Scope.TRAIN_BATCH)
    logbook.begin_batch([0, 0], opens_window=True)
    logbook.log("loss", 2.0, on_epoch=True)
    assert logbook.merge_steps([logbook.step_table()]) == {"loss_step": 2.0}
    assert logbook.close(evaluation=False) == {"loss_epoch": 2.0}
    assert set(logbook.callback) == {"loss", "loss_step", "loss_epoch"}


@pytest.mark.parametrize(("reduce_fx", "expected"), [("sum", 6.0), ("min", 1.0), ("max", 3.0), ("mean", 2.0)])
def test_reductions_also_when_many_values_were_folded(reduce_fx: str, expected: float) -> None:
    logbook, _ = book(Scope.EVAL)
    for index in range(1200):
        logbook.begin_batch([0])
        logbook.log("x", float(index % 3 + 1) if reduce_fx != "sum" else 6.0 / 1200, reduce_fx=reduce_fx)
    assert logbook.close(evaluation=True)["x"] == pytest.approx(expected, rel=1e-12)


def test_logging_outside_of_a_run_is_refused() -> None:
    logbook, _ = book(Scope.CLOSED)
    with pytest.raises(ConfigError, match="outside of training"):
        logbook.log("x", 1.0)


def test_unknown_reduction_gets_a_suggestion() -> None:
    logbook, _ = book(Scope.EVAL)
    with pytest.raises(ConfigError, match="Did you mean 'mean'"):
        logbook.log("x", 1.0, reduce_fx="meen")


def test_one_name_with_two_meanings_is_refused() -> None:
    logbook, _ = book(Scope.EVAL)
    logbook.begin_batch([0])
    logbook.log("x", 1.0)
    with pytest.raises(ConfigError, match="other arguments"):
        logbook.log("x", 1.0, reduce_fx="max")


def test_the_names_of_counters_are_taken() -> None:
    logbook, _ = book(Scope.EVAL)
    with pytest.raises(ConfigError, match="the name of a counter"):
        logbook.log("epoch", 1.0)


def test_step_values_do_not_exist_in_evaluation() -> None:
    logbook, _ = book(Scope.EVAL)
    with pytest.raises(ConfigError, match="on_step=True"):
        logbook.log("x", 1.0, on_step=True)


def test_epoch_values_of_the_run_before_are_carried_on() -> None:
    before, _ = book(Scope.TRAIN_BATCH)
    for value in (1.0, 2.0):
        before.begin_batch([0], opens_window=True)
        before.log("loss", value, on_step=False, on_epoch=True)
    after, _ = book(Scope.TRAIN_BATCH)
    after.carry(before.epoch_table())
    after.begin_batch([0], opens_window=True)
    after.log("loss", 6.0, on_step=False, on_epoch=True)
    assert after.close(evaluation=False) == {"loss": 3.0}


def evaluate_on(size: int, values: list[float]) -> list[dict[str, float]]:
    """Every rank's metrics when the values are dealt to `size` ranks."""

    def work(world: World, group: Group) -> dict[str, float]:
        mine = values[world.rank :: size]
        runtime = FakeRuntime([], world=world, group=group, evaluation=[[[v] for v in mine]])
        run = Run(runtime, Policy(), dict.fromkeys(runtime.hooks, ()), Stage.VALIDATE, _state())
        run.eval_loaders = 1
        step = runtime.eval_step

        def logging(stage: Stage, batch: Any, batch_idx: int, loader: int) -> Any:
            run.logbook.log("mean", batch[0])
            run.logbook.log("most", batch[0], reduce_fx="max")
            return step(stage, batch, batch_idx, loader)

        runtime.eval_step = logging  # type: ignore[method-assign]
        evaluate(run, Stage.VALIDATE)
        assert runtime.counts["gather"] == 1
        assert runtime.counts["read"] <= 1
        return run.results()[0]

    return run_ranks(size, work)


def _state() -> Any:
    from lumen.core.progress import TrainState

    return TrainState()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_an_evaluation_is_the_same_number_on_any_number_of_ranks(size: int) -> None:
    values = [0.5, 2.0, 3.0, -1.0, 4.0]
    for metrics in evaluate_on(size, values):
        assert metrics == {"mean": pytest.approx(1.7, abs=1e-15), "most": 4.0}


def test_a_name_logged_on_one_rank_only_is_an_error_that_names_both() -> None:
    def work(world: World, group: Group) -> None:
        runtime = FakeRuntime([1, 2], world=world, group=group)

        def prepare(run: Run) -> None:
            def log(*_: Any) -> None:
                if world.rank == 1:
                    run.logbook.log("only", 1.0)

            run.hooks["on_train_batch_start"] = (log,)  # type: ignore[index]

        run_fit(runtime, Policy(max_epochs=1, log=Every(1, Unit.STEP)), prepare=prepare)

    with pytest.raises(DataError, match=r"'only'.*rank 1 but not on rank 0"):
        run_ranks(2, work)


def test_a_sanity_check_leaves_no_value_behind() -> None:
    runtime = FakeRuntime([], evaluation=[[[1.0]]])
    run = Run(
        runtime,
        Policy(validate=Validation(every=Every(1, Unit.EPOCH))),
        dict.fromkeys(runtime.hooks, ()),
        Stage.FIT,
        _state(),
    )
    run.eval_loaders = 1
    runtime.eval_step = lambda *_: run.logbook.log("x", 1.0)  # type: ignore[method-assign]
    evaluate(run, Stage.SANITY)
    assert run.logbook.callback == {}
    assert run.logbook.logged == {}


def test_the_hooks_around_an_epoch_log_into_that_epoch() -> None:
    runtime = FakeRuntime([1, 2], evaluation=[])
    written: list[dict[str, float]] = []

    def prepare(run: Run) -> None:
        run.write = written.append  # type: ignore[method-assign]
        for hook, value in (("on_train_start", 1.0), ("on_train_epoch_start", 2.0), ("on_train_epoch_end", 3.0)):
            run.hooks[hook] = (lambda hook=hook, value=value: run.logbook.log(hook, value),)  # type: ignore[index]

    run_fit(runtime, Policy(max_epochs=2), prepare=prepare)
    both = {"on_train_epoch_start": 2.0, "on_train_epoch_end": 3.0}
    assert written == [{"on_train_start": 1.0, **both}, both]
