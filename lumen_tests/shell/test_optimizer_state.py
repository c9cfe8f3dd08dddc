"""Optimizers and schedulers resume to the bit, whatever was built before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lumen.errors import CheckpointError
from lumen.shell.optimizer_state import capture, restore, restore_scheduler, scheduler_state
from lumen.shell.paddle_shim import paddle
from lumen.shell.weights import load_weights, weights

nn, lr = paddle.nn, paddle.optimizer.lr
NAMES = ["AdamW", "Adam", "Momentum", "SGD", "RMSProp", "Lamb", "Adagrad", "Adamax", "Adadelta", "NAdam", "RAdam"]
SCHEDULERS = {
    "nested warmup": lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(0.1, 10), 3, 0.0, 0.1),
    "one cycle": lambda: lr.OneCycleLR(0.1, 20),
    "piecewise": lambda: lr.PiecewiseDecay([2, 4], [0.1, 0.05, 0.01]),
    "multi step": lambda: lr.MultiStepDecay(0.1, [2, 4]),
    "noam": lambda: lr.NoamDecay(8, 3),
}
if hasattr(lr, "CosineAnnealingWarmRestarts"):
    SCHEDULERS["restarts"] = lambda: lr.CosineAnnealingWarmRestarts(0.1, 2, 2)
X = paddle.to_tensor(np.random.RandomState(0).randn(8, 4).astype("float32"))


def net() -> Any:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2), nn.Linear(3, 3))  # the last one is never used


def train(module: Any, optimizer: Any, steps: int, scheduler: Any = None) -> None:
    for _ in range(steps):
        module[2](module[1](module[0](X))).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        if scheduler is not None:
            scheduler.step()


def make(name: str, module: Any, scheduler: Any = 0.05) -> Any:
    return getattr(paddle.optimizer, name)(learning_rate=scheduler, parameters=module.parameters())


def same(one: Any, two: Any) -> bool:
    return all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:Op .* is executed through:DeprecationWarning")  # Adagrad of 2.6.2
@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(paddle.optimizer, name)])
def test_an_optimizer_goes_on_to_the_bit_in_a_new_model_and_in_a_second_optimizer(name: str) -> None:
    module = net()
    optimizer = make(name, module)
    train(module, optimizer, 3)
    saved, at_save = capture(optimizer, module), weights(module)
    train(module, optimizer, 4)
    net()  # other layers take Paddle's next names
    other = net()
    load_weights(other, at_save, "test")
    second = make(name, other)
    restore(second, other, saved)
    train(other, second, 4)
    assert same(module, other)
    load_weights(other, at_save, "test")
    third = make(name, other)
    train(other, third, 2)  # has stepped already
    load_weights(other, at_save, "test")
    restore(third, other, saved)
    train(other, third, 4)
    assert same(module, other)


@pytest.mark.parametrize("kind", sorted(SCHEDULERS))
def test_a_scheduler_goes_on_exactly(kind: str) -> None:
    module = net()
    scheduler = SCHEDULERS[kind]()
    optimizer = make("AdamW", module, scheduler)
    train(module, optimizer, 3, scheduler)
    saved, state, at_save = capture(optimizer, module), scheduler_state(scheduler), weights(module)
    rates = []
    for _ in range(6):
        train(module, optimizer, 1, scheduler)
        rates.append(optimizer.get_lr())
    other = net()
    load_weights(other, at_save, "test")
    again = SCHEDULERS[kind]()
    second = make("AdamW", other, again)
    restore(second, other, saved)
    restore_scheduler(again, state)
    seen = []
    for _ in range(6):
        train(other, second, 1, again)
        seen.append(second.get_lr())
    assert seen == rates
    assert same(module, other)


def test_a_learning_rate_that_was_set_comes_back() -> None:
    module = net()
    optimizer = make("Momentum", module)
    optimizer.set_lr(0.123)
    train(module, optimizer, 1)
    second = make("Momentum", module)
    restore(second, module, capture(optimizer, module))
    assert second.get_lr() == pytest.approx(0.123)


def test_parameter_groups_go_on() -> None:
    def grouped(module: Any) -> Any:
        groups = [
            {"params": module[0].parameters(), "learning_rate": 0.1},
            {"params": module[2].parameters(), "weight_decay": 0.3},
        ]
        return paddle.optimizer.AdamW(learning_rate=0.05, parameters=groups)

    module = net()
    optimizer = grouped(module)
    train(module, optimizer, 3)
    saved, at_save = capture(optimizer, module), weights(module)
    train(module, optimizer, 3)
    other = net()
    load_weights(other, at_save, "test")
    second = grouped(other)
    restore(second, other, saved)
    train(other, second, 3)
    assert same(module, other)


def test_what_does_not_fit_is_refused() -> None:
    module = net()
    optimizer = make("AdamW", module)
    train(module, optimizer, 1)
    saved = capture(optimizer, module)
    with pytest.raises(CheckpointError, match=r"SGD.*allowed: AdamW"):
        restore(make("SGD", module), module, saved)
    part = paddle.optimizer.AdamW(learning_rate=0.05, parameters=module[0].parameters())
    with pytest.raises(CheckpointError, match=r"no parameter '2\.bias'"):
        restore(part, module, saved)
    with pytest.raises(CheckpointError, match="no parameter of the module"):
        capture(optimizer, nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match=r"NoamDecay.*allowed: PiecewiseDecay"):
        restore_scheduler(SCHEDULERS["noam"](), scheduler_state(SCHEDULERS["piecewise"]()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("0.weight"), r"no weight '0\.weight'"),
        (lambda w: w.update(more=np.zeros(1, "float32")), "a weight 'more'"),
        (lambda w: w.update({"0.weight": np.zeros((5, 4), "float32")}), r"'0\.weight' of shape \[5, 4\]"),
        (lambda w: w.update({"0.weight": np.zeros((4, 5), "float64")}), "type float64"),
    ],
)
def test_weights_are_set_whole_or_not_at_all(change: Any, message: str) -> None:
    module, saved = net(), weights(net())
    before = weights(module)
    change(saved)
    with pytest.raises(CheckpointError, match=message):
        load_weights(module, saved, "test")
    assert all(np.array_equal(before[name], value) for name, value in weights(module).items())


def test_bfloat16_weights_survive() -> None:
    module = nn.Linear(3, 2)
    module.to(dtype="bfloat16")
    other = nn.Linear(3, 2)
    other.to(dtype="bfloat16")
    load_weights(other, weights(module), "test")
    np.testing.assert_array_equal(other.weight.numpy(), module.weight.numpy())
