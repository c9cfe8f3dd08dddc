"""ModuleHooks: the hooks that a module may override, beside its step methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ModuleHooks:
    """The hooks of `lumen.Callback` without trainer and module; a module's are called after all callbacks'."""

    def setup(self, stage: str) -> None:
        """Before anything else of a stage: "fit", "validate", "test" or "predict"."""

    def teardown(self, stage: str) -> None:
        """After everything else of a stage."""

    def on_fit_start(self) -> None:
        """The model, the optimizers and the ranks are ready."""

    def on_fit_end(self) -> None:
        """The fit is over."""

    def on_train_start(self) -> None:
        """Training begins."""

    def on_train_end(self) -> None:
        """Training ended."""

    def on_train_epoch_start(self) -> None:
        """An epoch begins."""

    def on_train_epoch_end(self) -> None:
        """An epoch ended, its validation included."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """A batch is on the device."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch was trained on."""

    def on_before_backward(self, loss: Any) -> None:
        """The loss is computed."""

    def on_after_backward(self) -> None:
        """The gradients are computed."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """The gradients are complete and unscaled, not yet clipped."""

    def on_before_zero_grad(self, optimizer: Any) -> None:
        """The optimizer has stepped; the gradients are about to be cleared."""

    def on_validation_start(self) -> None:
        """Validation begins."""

    def on_validation_end(self) -> None:
        """Validation is over and its metrics are known."""

    def on_validation_epoch_start(self) -> None:
        """Before the first validation batch."""

    def on_validation_epoch_end(self) -> None:
        """After the last validation batch; values may still be logged."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A validation batch is on the device."""

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A validation batch was evaluated."""

    def on_test_start(self) -> None:
        """Testing begins."""

    def on_test_end(self) -> None:
        """Testing is over and its metrics are known."""

    def on_test_epoch_start(self) -> None:
        """Before the first test batch."""

    def on_test_epoch_end(self) -> None:
        """After the last test batch; values may still be logged."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A test batch is on the device."""

    def on_test_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A test batch was evaluated."""

    def on_predict_start(self) -> None:
        """Predicting begins."""

    def on_predict_end(self) -> None:
        """Predicting is over."""

    def on_predict_epoch_start(self) -> None:
        """Before the first batch to predict."""

    def on_predict_epoch_end(self) -> None:
        """After the last batch to predict."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch to predict is on the device."""

    def on_predict_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch was predicted."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is being written; plain data and arrays may be added to `checkpoint`."""

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """A checkpoint is being read; `checkpoint` holds what `on_save_checkpoint` added."""
