"""LearningRateMonitor: names, moments, and what a record means."""

from __future__ import annotations

from typing import Any

import pytest

from lumen.callbacks.lr_monitor import LearningRateMonitor, learning_rates
from lumen.core.cadence import Every, Unit
from lumen.core.policy import Policy
from lumen.errors import ConfigError
from lumen.testing import FakeRuntime
from lumen_tests.callbacks.fakes import FakeTrainer

STEP, EPOCH = Every(1, Unit.STEP), Every(1, Unit.EPOCH)


class AdamW:
    """An optimizer whose rate halves each time the scheduler moves."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate

    def get_lr(self) -> float:
        return self.rate


class SGD(AdamW):
    pass


def records(policy: Policy, *, interval: Any = None, batches: int = 4) -> list[tuple[int, dict[str, float]]]:
    monitor = LearningRateMonitor(logging_interval=interval)
    trainer = FakeTrainer([monitor], policy, loggers=["a logger"])
    optimizer = AdamW()
    trainer.optimizers = [optimizer]
    runtime = FakeRuntime(list(range(batches)))

    def halve() -> None:
        optimizer.rate /= 2

    runtime.scheduler_step = halve  # type: ignore[method-assign]
    trainer.fit(runtime)
    assert monitor.last_lrs == (trainer.records[-1][1] if trainer.records else {})
    return trainer.records


def test_a_scheduler_in_steps_is_logged_at_log_points_with_the_rate_of_the_next_step() -> None:
    found = records(Policy(max_epochs=1, schedule=STEP, log=Every(2, Unit.STEP)))
    assert found == [(2, {"lr-AdamW": 0.25}), (4, {"lr-AdamW": 0.0625})]


def test_a_scheduler_in_epochs_is_logged_as_epochs_start() -> None:
    found = records(Policy(max_epochs=2, schedule=EPOCH, log=STEP))
    assert found == [(0, {"lr-AdamW": 1.0}), (4, {"lr-AdamW": 0.5})]


def test_without_a_scheduler_epochs_count() -> None:
    assert records(Policy(max_epochs=2, log=STEP)) == [(0, {"lr-AdamW": 1.0}), (4, {"lr-AdamW": 1.0})]


def test_a_given_interval_decides() -> None:
    by_step = records(Policy(max_epochs=1, schedule=EPOCH, log=Every(3, Unit.STEP)), interval="step")
    assert by_step == [(3, {"lr-AdamW": 1.0})]
    by_epoch = records(Policy(max_epochs=1, schedule=STEP, log=STEP), interval="epoch")
    assert by_epoch == [(0, {"lr-AdamW": 1.0})]


def test_where_nothing_is_logged_in_steps_no_rate_is() -> None:
    assert records(Policy(max_epochs=1, schedule=STEP)) == []


def test_windows_and_not_batches_are_logged() -> None:
    found = records(Policy(max_epochs=1, schedule=STEP, log=STEP, accumulate=3))
    assert [step for step, _ in found] == [1, 2]


def test_optimizers_of_one_class_are_numbered() -> None:
    optimizers = [AdamW(0.1), SGD(0.2), AdamW(0.3), AdamW(0.4)]
    assert learning_rates(optimizers) == {"lr-AdamW": 0.1, "lr-SGD": 0.2, "lr-AdamW-1": 0.3, "lr-AdamW-2": 0.4}


def test_without_a_logger_a_fit_is_refused_before_it_starts() -> None:
    trainer = FakeTrainer([LearningRateMonitor()], Policy(max_epochs=1))
    runtime = FakeRuntime([1])
    with pytest.raises(ConfigError, match=r"LearningRateMonitor.*without a logger"):
        trainer.fit(runtime)
    assert runtime.calls == []


def test_without_a_logger_an_evaluation_is_not_refused() -> None:
    from lumen.loop.runtime import Stage

    FakeTrainer([LearningRateMonitor()]).evaluate(FakeRuntime([], evaluation=[[1]]), Stage.TEST)


@pytest.mark.parametrize("interval", ["steps", "batch", 3, True])
def test_another_interval_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigError, match="logging_interval"):
        LearningRateMonitor(logging_interval=interval)
