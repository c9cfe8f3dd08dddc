"""The golden order of the hooks in a real run, callbacks before the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lumen
from lumen.callbacks.base import HOOKS
from lumen.hooks import ModuleHooks
from lumen_tests.models import Classifier, loader, quiet


def recording(base: type, told: list[str], prefix: str) -> type:
    """A subclass whose hooks note that they were called."""

    def make(hook: str) -> Any:
        def called(self: Any, *args: Any) -> None:
            told.append(f"{prefix}{hook}")

        return called

    names = [hook for hook in HOOKS if hasattr(base, hook)]
    return type(f"Recording{base.__name__}", (base,), {hook: make(hook) for hook in names})


BATCH = ["on_train_batch_start", "on_before_backward", "on_after_backward"]
STEP = ["on_before_optimizer_step", "on_before_zero_grad"]
VALIDATION = [
    "on_validation_start",
    "on_validation_epoch_start",
    "on_validation_batch_start",
    "on_validation_batch_end",
    "on_validation_epoch_end",
    "on_validation_end",
]
FIT = [
    "setup",
    "on_fit_start",
    "on_sanity_check_start",
    *VALIDATION,
    "on_sanity_check_end",
    "on_train_start",
    "on_train_epoch_start",
    *BATCH,
    "on_train_batch_end",
    *BATCH,
    *STEP,
    "on_train_batch_end",
    *BATCH,
    *STEP,
    "on_train_batch_end",
    *VALIDATION,
    "on_train_epoch_end",
    "on_train_epoch_logged",
    "on_checkpoint",
    "on_save_checkpoint",
    "on_train_end",
    "on_fit_end",
    "teardown",
]
RESUMED = ["setup", "on_load_checkpoint", "on_fit_start", "on_train_start", "on_train_epoch_start"]


def test_a_fit_and_a_resumed_fit(tmp_path: Path) -> None:
    told: list[str] = []
    callback = recording(lumen.Callback, told, "")()
    options = {"accumulate_grad_batches": 2, "callbacks": [callback]}
    quiet(tmp_path, max_epochs=1, **options).fit(Classifier(), loader(12), loader(4))
    # the checkpoint callback is called last, so what it does comes after this one's on_checkpoint
    assert told == FIT
    told.clear()
    quiet(tmp_path, max_epochs=2, **options).fit(Classifier(), loader(12), loader(4), ckpt_path="last")
    assert told[: len(RESUMED)] == RESUMED


def test_the_modules_hooks_come_after_the_callbacks(tmp_path: Path) -> None:
    told: list[str] = []
    callback = recording(lumen.Callback, told, "callback ")()
    module = recording(Classifier, told, "module ")()
    trainer = quiet(tmp_path, max_epochs=1, callbacks=[callback])
    trainer.fit(module, loader(4), loader(4))
    of_both = [hook for hook in HOOKS if hasattr(ModuleHooks, hook)]
    for hook in of_both:
        if f"callback {hook}" in told:
            at = told.index(f"callback {hook}")
            assert told[at + 1] == f"module {hook}", hook
    assert sum(text.startswith("module") for text in told) > 20


def test_the_order_of_tests_and_predictions(tmp_path: Path) -> None:
    told: list[str] = []
    trainer = quiet(tmp_path, callbacks=[recording(lumen.Callback, told, "")()])
    for stage, run in (("test", trainer.test), ("predict", trainer.predict)):
        told.clear()
        run(Classifier(), loader(4))
        assert told == [
            "setup",
            f"on_{stage}_start",
            f"on_{stage}_epoch_start",
            f"on_{stage}_batch_start",
            f"on_{stage}_batch_end",
            f"on_{stage}_epoch_end",
            f"on_{stage}_end",
            "teardown",
        ]


def test_the_documented_order_names_every_hook_of_a_fit() -> None:
    text = str(lumen.Callback.__doc__)
    for hook in [*FIT, *RESUMED]:
        assert hook in text, hook
