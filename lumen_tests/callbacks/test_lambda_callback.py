"""LambdaCallback: functions at hooks, and names that are none."""

from __future__ import annotations

from typing import Any

import pytest

from lumen.callbacks.base import HOOKS, dispatch_table, overrides
from lumen.callbacks.lambda_callback import LambdaCallback
from lumen.core.policy import Policy
from lumen.errors import ConfigError
from lumen.testing import FakeRuntime
from lumen_tests.callbacks.fakes import FakeTrainer


def test_functions_are_called_with_trainer_and_module_at_their_hooks_only() -> None:
    seen: list[tuple[Any, ...]] = []
    callback = LambdaCallback(
        on_train_epoch_end=lambda trainer, module: seen.append((trainer, module)),
        on_train_batch_end=lambda trainer, module, outputs, batch, batch_idx: seen.append((batch, batch_idx)),
    )
    trainer = FakeTrainer([callback], Policy(max_epochs=1))
    trainer.fit(FakeRuntime(["a", "b"]))
    assert seen == [("a", 0), ("b", 1), (trainer, None)]
    assert [hook for hook in HOOKS if overrides(callback, hook)] == ["on_train_epoch_end", "on_train_batch_end"]


def test_every_hook_may_be_given() -> None:
    table = dispatch_table([LambdaCallback(**dict.fromkeys(HOOKS, print))], object(), object, ())
    assert {hook for hook, calls in table.items() if calls} == set(HOOKS)


def test_a_misspelt_hook_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"on_train_epoch_ends=.*Did you mean 'on_train_epoch_end'?"):
        LambdaCallback(on_train_epoch_ends=print)


@pytest.mark.parametrize("name", ["state_dict", "state_key", "__init__"])
def test_what_is_no_hook_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no hook has this name"):
        LambdaCallback(**{name: print})


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"on_fit_end=.*got 3.*a function"):
        LambdaCallback(on_fit_end=3)  # type: ignore[arg-type]
