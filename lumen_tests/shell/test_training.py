"""Training on one rank, against loops written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumen
from lumen.core.policy import StopReason
from lumen.shell.paddle_shim import paddle
from lumen_tests.models import Classifier, F, Rows, digest, loader, quiet


def batches_of(rows: Rows, size: int) -> list[tuple[Any, Any]]:
    return [
        (paddle.to_tensor(rows.x[i : i + size]), paddle.to_tensor(rows.y[i : i + size]))
        for i in range(0, len(rows), size)
    ]


def test_a_fit_equals_the_loop_written_by_hand_bit_for_bit(tmp_path: Path) -> None:
    lumen.seed_everything(1)
    module, by_hand = Classifier(), Classifier()
    by_hand.set_state_dict(module.state_dict())
    quiet(tmp_path, max_epochs=2).fit(module, loader(20))
    optimizer = by_hand.configure_optimizers()
    for _ in range(2):
        for batch in batches_of(Rows(20), 4):
            by_hand.loss(batch)[0].backward()
            optimizer.step()
            optimizer.clear_grad()
    assert digest(module) == digest(by_hand)


@pytest.mark.parametrize("clip", [None, ("norm", 0.1), ("value", 0.01)])
def test_windows_of_three_on_seven_batches_equal_hand_computed_gradients(tmp_path: Path, clip: Any) -> None:
    lumen.seed_everything(1)
    module, by_hand = Classifier(), Classifier()
    by_hand.set_state_dict(module.state_dict())
    options = {} if clip is None else {"gradient_clip_algorithm": clip[0], "gradient_clip_val": clip[1]}
    quiet(tmp_path, max_epochs=1, accumulate_grad_batches=3, **options).fit(module, loader(28))
    optimizer = by_hand.configure_optimizers()
    batches = batches_of(Rows(28), 4)
    for window in (batches[:3], batches[3:6], batches[6:]):
        loss = sum(by_hand.loss(batch)[0] for batch in window) / len(window)
        loss.backward()
        if clip is not None:
            clip_ = paddle.nn.utils.clip_grad_norm_ if clip[0] == "norm" else paddle.nn.utils.clip_grad_value_
            clip_(by_hand.parameters(), clip[1])
        optimizer.step()
        optimizer.clear_grad()
    for mine, theirs in zip(module.parameters(), by_hand.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=1e-6)


def test_max_steps_ends_exactly_there(tmp_path: Path) -> None:
    trainer = quiet(tmp_path, max_steps=7)
    trainer.fit(Classifier(), loader(20))
    assert trainer.global_step == 7
    assert trainer.stop_reason is StopReason.MAX_STEPS
    assert (trainer.current_epoch, trainer.progress.batch, trainer.progress.samples) == (1, 2, 28)


def test_validation_runs_in_eval_mode_without_gradients_and_leaves_modes_and_randomness_alone(tmp_path: Path) -> None:
    class Watching(Classifier):
        def on_fit_start(self) -> None:
            self.net[2].eval()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            super().validation_step(batch, batch_idx)
            self.seen.append(
                (self.training, self.net(batch[0]).stop_gradient, paddle.rand([1]).item(), np.random.rand())
            )

        def on_train_epoch_end(self) -> None:
            self.seen.append((self.training, self.net[2].training, self.net[0].training))

    module = Watching(dropout=0.5)
    quiet(tmp_path, max_epochs=1, num_sanity_val_steps=0).fit(module, loader(8), loader(4))
    assert module.seen[0][:2] == (False, True)
    assert module.seen[1] == (True, False, True)

    class Drawing(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            paddle.rand([3])
            np.random.rand(3)

    def trained_with(validations: int) -> str:
        lumen.seed_everything(5)
        one = Drawing(dropout=0.5)
        options = {"limit_val_batches": validations, "num_sanity_val_steps": 2, "val_check_interval": 1}
        quiet(tmp_path, max_epochs=2, **options).fit(one, loader(12, shuffle=True), loader(8))
        return digest(one)

    assert trained_with(0) == trained_with(1) == trained_with(2)


def test_a_step_scheduler_and_an_epoch_scheduler_move_as_often_as_they_should(tmp_path: Path) -> None:
    for interval, moves in (("step", 6), ("epoch", 2)):
        trainer = quiet(tmp_path, max_epochs=2, accumulate_grad_batches=2)
        trainer.fit(Classifier(schedule=interval), loader(20))
        assert trainer.lr_schedulers[0].last_epoch == moves


def test_ready_batches_in_a_list_a_dict_output_and_a_step_without_index(tmp_path: Path) -> None:
    class Short(Classifier):
        def training_step(self, batch: Any) -> Any:  # type: ignore[override]
            return {"loss": self.loss(batch)[0], "n": 1}

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.seen.append((outputs["n"], batch_idx))

    module = Short()
    quiet(tmp_path, max_epochs=1).fit(module, batches_of(Rows(12), 4))
    assert module.seen == [(1, 0), (1, 1), (1, 2)]


def test_fit_twice_goes_on_with_fresh_counters_and_test_and_predict_use_the_same_module(tmp_path: Path) -> None:
    module = Classifier()
    trainer = quiet(tmp_path, max_epochs=2)
    trainer.fit(module, loader(12))
    first = digest(module)
    trainer.fit(module, loader(12))
    assert digest(module) != first
    assert trainer.current_epoch == 2
    metrics = trainer.test(dataloaders=loader(10))
    assert set(metrics[0]) == {"test_loss", "test_acc"}
    predictions = trainer.predict(dataloaders=loader(10))
    assert [list(p.shape) for p in predictions] == [[4, 3], [4, 3], [2, 3]]


def test_an_epoch_value_is_the_mean_over_samples_and_several_loaders_give_a_dict_each(tmp_path: Path) -> None:
    module = Classifier()
    trainer = quiet(tmp_path, max_epochs=0)
    trainer.fit(module, loader(4))
    one = trainer.validate(module, loader(10, batch_size=3))[0]
    with paddle.no_grad():
        rows = Rows(10)
        logits = module.net(paddle.to_tensor(rows.x))
        expected = F.cross_entropy(logits, paddle.to_tensor(rows.y)).item()
    assert one["val_loss"] == pytest.approx(expected, rel=1e-6)
    two = trainer.validate(module, [loader(10), loader(6)])
    assert [sorted(metrics) for metrics in two] == [
        ["val_acc/dataloader_idx_0", "val_loss/dataloader_idx_0"],
        ["val_acc/dataloader_idx_1", "val_loss/dataloader_idx_1"],
    ]


def test_early_stopping_asks_and_the_run_stops(tmp_path: Path) -> None:
    stopping = lumen.EarlyStopping("val_loss", patience=1, min_delta=100.0)
    trainer = quiet(tmp_path, max_epochs=10, callbacks=[stopping])
    trainer.fit(Classifier(), loader(12), loader(8))
    assert trainer.current_epoch == 2
    assert trainer.stop_reason is StopReason.REQUEST


def test_the_csv_log_has_all_counters(tmp_path: Path) -> None:
    trainer = quiet(tmp_path, max_epochs=2, log_every_n_steps=2)
    trainer.fit(Classifier(), loader(12), loader(8))
    assert trainer.log_dir is not None
    lines = (Path(trainer.log_dir) / "metrics.csv").read_text().splitlines()
    assert lines[0].startswith("batch,step,epoch,samples,seconds,")
    assert {"train_loss_step", "train_loss_epoch", "val_loss", "val_acc"} <= set(lines[0].split(","))
    assert len(lines) > 4


def test_a_datamodule_gives_the_loaders_and_is_told_what_happens(tmp_path: Path) -> None:
    told: list[str] = []

    class Data(lumen.DataModule):
        def prepare_data(self) -> None:
            told.append("prepare")

        def setup(self, stage: str) -> None:
            told.append(f"setup {stage}")

        def train_dataloader(self) -> Any:
            return loader(8)

        def test_dataloader(self) -> Any:
            return loader(4)

        def teardown(self, stage: str) -> None:
            told.append(f"teardown {stage}")

    trainer, module = quiet(tmp_path, max_epochs=1), Classifier()
    trainer.fit(module, datamodule=Data())
    trainer.test(module, datamodule=Data())
    assert told == ["prepare", "setup fit", "teardown fit", "prepare", "setup test", "teardown test"]


def test_requests_of_a_callback_are_honoured(tmp_path: Path) -> None:
    class Asking(lumen.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 2:
                trainer.request_checkpoint()
            if trainer.global_step == 3:
                trainer.should_stop = True

    trainer = quiet(tmp_path, max_epochs=4, callbacks=[Asking()])
    trainer.fit(Classifier(), loader(20))
    assert trainer.global_step == 3
    assert Path(trainer.checkpoint_callback.last_model_path).is_dir()
