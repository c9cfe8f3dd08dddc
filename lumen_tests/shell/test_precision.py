"""The scaled step, with Paddle's scaler forced on (on a CPU it switches itself off)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumen.shell.paddle_shim import paddle
from lumen.shell.precision import Precision
from lumen_tests.models import Classifier, digest, loader, quiet


@pytest.fixture
def make_scaler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes real scalers that believe they are on a GPU."""
    from paddle.amp import grad_scaler
    from paddle.amp.auto_cast import amp_global_state

    class OnGpu:
        class _expected_place:  # noqa: N801 - Paddle's name
            is_gpu_place = staticmethod(lambda: True)

    def make(**options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(grad_scaler, "_dygraph_tracer", lambda: OnGpu)
            scaler = paddle.amp.GradScaler(**options)
        amp_global_state().amp_dtype = "float16"  # else scale() switches a dynamic scaler off
        assert scaler.is_enable()
        return scaler

    yield make
    amp_global_state().amp_dtype = "float32"


def linear(value: float) -> tuple[Any, Any]:
    parameter = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(value))
    return parameter, paddle.optimizer.Momentum(learning_rate=0.5, momentum=0.9, parameters=[parameter])


def scaled_step(precision: Precision, pairs: list[tuple[Any, Any]], grads: list[float]) -> bool:
    for (parameter, _), grad in zip(pairs, grads, strict=True):
        precision.scale((parameter * grad).sum()).backward()
    optimizers = [optimizer for _, optimizer in pairs]
    stepped = precision.step(optimizers, precision.unscale(optimizers))
    for optimizer in optimizers:
        optimizer.clear_grad(set_to_zero=False)
    return stepped


@pytest.mark.parametrize("infinite", [0, 1])
def test_two_optimizers_step_both_or_none_and_the_scale_moves_once(make_scaler: Any, infinite: int) -> None:
    precision = Precision("32-true", on_gpu=False, scaler=make_scaler(init_loss_scaling=1024.0, incr_every_n_steps=2))
    pairs = [linear(1.0), linear(2.0)]
    assert scaled_step(precision, pairs, [1.0, 3.0])
    np.testing.assert_allclose(pairs[0][0].numpy(), [0.5, 0.5])
    np.testing.assert_allclose(pairs[1][0].numpy(), [0.5, 0.5])
    grads = [1.0, 3.0]
    grads[infinite] = float("inf")
    before = [parameter.numpy().copy() for parameter, _ in pairs]
    assert not scaled_step(precision, pairs, grads)
    for (parameter, _), old in zip(pairs, before, strict=True):
        np.testing.assert_array_equal(parameter.numpy(), old)
    assert precision.state()["scale"] == [512.0]
    assert scaled_step(precision, pairs, [1.0, 3.0])
    assert scaled_step(precision, pairs, [1.0, 3.0])
    assert precision.state()["scale"] == [1024.0]


def test_a_plain_step_after_a_skip_is_not_skipped(make_scaler: Any) -> None:
    precision = Precision("32-true", on_gpu=False, scaler=make_scaler(init_loss_scaling=8.0))
    pair = linear(1.0)
    assert not scaled_step(precision, [pair], [float("nan")])
    assert scaled_step(precision, [pair], [1.0])
    np.testing.assert_allclose(pair[0].numpy(), [0.5, 0.5])


def test_static_scaling_steps_more_than_once(make_scaler: Any) -> None:
    precision = Precision(
        "32-true", on_gpu=False, scaler=make_scaler(init_loss_scaling=4.0, use_dynamic_loss_scaling=False)
    )
    pair = linear(1.0)
    assert scaled_step(precision, [pair], [1.0])
    assert scaled_step(precision, [pair], [1.0])


def test_the_state_comes_back(make_scaler: Any) -> None:
    first = Precision("32-true", on_gpu=False, scaler=make_scaler(init_loss_scaling=64.0, incr_every_n_steps=3))
    pair = linear(1.0)
    scaled_step(first, [pair], [float("inf")])
    scaled_step(first, [pair], [1.0])
    second = Precision("32-true", on_gpu=False, scaler=make_scaler(init_loss_scaling=2.0, incr_every_n_steps=3))
    second.restore(first.state())
    assert second.state() == first.state()
    scaled_step(second, [pair], [1.0])
    scaled_step(second, [pair], [1.0])
    assert second.state()["scale"] == [64.0]


def test_on_a_cpu_mixed_precision_says_so_and_trains_in_32_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = []
    for precision in ("32-true", "bf16-mixed", "16-mixed"):
        paddle.seed(1)
        module = Classifier()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="lumen"):
            quiet(tmp_path, max_epochs=1, precision=precision).fit(module, loader(8))
        weights.append(digest(module))
        assert ("Paddle casts nothing on a CPU" in caplog.text) == (precision != "32-true")
    assert len(set(weights)) == 1
