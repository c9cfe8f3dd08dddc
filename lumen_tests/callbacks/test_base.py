"""Callback: which hooks there are, who overrides them, and in what order they are called."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from lumen.callbacks.base import HOOKS, Callback, dispatch_table, overrides

TRAINER, MODULE = object(), object()


class ModuleBase:
    """Hooks as a module has them: no trainer and no module among their arguments."""

    def setup(self, stage: str) -> None: ...

    def on_fit_start(self) -> None: ...

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None: ...


def calls_of(callbacks: list[Callback], module: object, hook: str, *args: Any) -> None:
    for call in dispatch_table(callbacks, module, ModuleBase, (TRAINER, MODULE))[hook]:
        call(*args)


def test_the_hooks_are_golden() -> None:
    loops = ("validation", "test", "predict")
    expected = {"setup", "teardown", "on_exception", "on_checkpoint", "on_save_checkpoint", "on_load_checkpoint"}
    expected |= {f"on_{what}_{when}" for what in ("fit", "sanity_check", "train") for when in ("start", "end")}
    expected |= {
        "on_train_epoch_start",
        "on_train_epoch_end",
        "on_train_epoch_logged",
        "on_train_batch_start",
        "on_train_batch_end",
    }
    expected |= {"on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad"}
    expected |= {
        f"on_{loop}{level}_{when}" for loop in loops for level in ("", "_epoch", "_batch") for when in ("start", "end")
    }
    assert set(HOOKS) == expected
    assert len(HOOKS) == len(expected)


def test_every_hook_takes_the_trainer_and_the_module_first() -> None:
    for hook in HOOKS:
        names = list(inspect.signature(getattr(Callback, hook)).parameters)
        assert names[:3] == ["self", "trainer", "module"], hook


def test_every_hook_of_the_base_does_nothing_and_says_what_it_is() -> None:
    for hook in HOOKS:
        function = getattr(Callback, hook)
        arguments = [None] * len(inspect.signature(function).parameters)
        assert function(*arguments) is None
        assert function.__doc__


def test_methods_of_subclasses_and_of_their_parents_count() -> None:
    class Parent(Callback):
        def on_fit_start(self, trainer: Any, module: Any) -> None: ...

    class Child(Parent):
        pass

    assert overrides(Child(), "on_fit_start")
    assert not overrides(Child(), "on_fit_end")


def test_attributes_of_one_object_count() -> None:
    plain, special = Callback(), Callback()
    special.on_fit_end = lambda trainer, module: None  # type: ignore[method-assign]
    assert overrides(special, "on_fit_end")
    assert not overrides(plain, "on_fit_end")


def test_a_base_hook_named_again_is_no_override() -> None:
    class Same(Callback):
        on_fit_start = Callback.on_fit_start

    assert not overrides(Same(), "on_fit_start")


def test_an_object_without_dict_or_hook_overrides_nothing() -> None:
    class Slim:
        __slots__ = ()

    assert not overrides(Slim(), "on_fit_start", object)


def test_callbacks_come_in_their_order_and_the_module_last() -> None:
    seen: list[str] = []

    class Named(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            assert (trainer, module) == (TRAINER, MODULE)
            seen.append(self.name)

    class Module(ModuleBase):
        def on_fit_start(self) -> None:
            seen.append("module")

    calls_of([Named("b"), Callback(), Named("a")], Module(), "on_fit_start")
    assert seen == ["b", "a", "module"]


def test_callbacks_and_module_get_the_hooks_own_arguments() -> None:
    seen: list[tuple[Any, ...]] = []

    class Recording(Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            seen.append(args)

    class Module(ModuleBase):
        def on_train_batch_end(self, *args: Any) -> None:
            seen.append(args)

    calls_of([Recording()], Module(), "on_train_batch_end", "outputs", "batch", 7)
    assert seen == [(TRAINER, MODULE, "outputs", "batch", 7), ("outputs", "batch", 7)]


def test_a_hook_set_on_the_object_is_called_with_the_same_arguments() -> None:
    seen: list[tuple[Any, ...]] = []
    callback, module = Callback(), ModuleBase()
    callback.setup = lambda *args: seen.append(args)  # type: ignore[method-assign]
    module.setup = lambda *args: seen.append(args)  # type: ignore[method-assign]
    calls_of([callback], module, "setup", "fit")
    assert seen == [(TRAINER, MODULE, "fit"), ("fit",)]


def test_nothing_is_bound_where_nobody_overrides() -> None:
    table = dispatch_table([Callback(), Callback()], ModuleBase(), ModuleBase, (TRAINER, MODULE))
    assert set(table) == set(HOOKS)
    assert set(table.values()) == {()}


def test_a_modules_method_that_is_no_hook_of_modules_is_not_called() -> None:
    class Module(ModuleBase):
        def on_checkpoint(self) -> None: ...

    assert dispatch_table([], Module(), ModuleBase, ())["on_checkpoint"] == ()


def test_the_state_of_a_callback_is_empty_and_named_by_its_class() -> None:
    class Mine(Callback):
        pass

    mine = Mine()
    mine.load_state_dict({})
    assert mine.state_dict() == {}
    assert mine.state_key.endswith("Mine")
    assert Callback().state_key == "Callback"


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_can_be_dispatched(hook: str) -> None:
    seen: list[str] = []
    callback = Callback()
    setattr(callback, hook, lambda *args: seen.append(hook))
    calls_of([callback], ModuleBase(), hook)
    assert seen == [hook]
