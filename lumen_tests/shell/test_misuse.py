"""Misuse: one clear error of a public class that says what to do, before any training where it can be known before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lumen
from lumen.errors import ConfigError, DataError, LumenError, ModuleError
from lumen.shell.paddle_shim import paddle
from lumen_tests.models import Classifier, Rows, loader, quiet


class NoStep(lumen.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 3)

    def configure_optimizers(self) -> Any:
        return paddle.optimizer.SGD(parameters=self.parameters())


class NeverTrained(Classifier):
    """Fails the test if a batch is trained on."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise AssertionError("trained although the misuse could be known before")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_epochs": -2}, r"max_epochs: got -2; allowed: an int >= -1"),
        ({"max_epochs": 1.0}, r"max_epochs: got 1\.0"),
        ({"max_epoch": 3}, r"Did you mean 'max_epochs'"),
        ({"devices": 0}, r"devices: got 0"),
        ({"devices": "2x"}, r"devices: got '2x'"),
        ({"devices": []}, r"devices: got \[\]"),
        ({"limit_train_batches": 1.5}, r"limit_train_batches: got 1\.5"),
        ({"limit_val_batches": -1}, r"limit_val_batches: got -1"),
        ({"precision": "bf16"}, r"Did you mean 'bf16-mixed'"),
        ({"accelerator": "gpus"}, r"Did you mean 'gpu'"),
        ({"accumulate_grad_batches": 0}, r"accumulate_grad_batches: got 0"),
        ({"gradient_clip_val": -1.0}, r"gradient_clip_val: got -1\.0"),
        ({"gradient_clip_algorithm": "nrm"}, r"Did you mean 'norm'"),
        ({"val_check_interval": 0}, r"val_check_interval: got 0"),
        ({"val_check_interval": "5 stops"}, r"Did you mean 'steps'"),
        ({"log_every_n_steps": -1}, r"log_every_n_steps: got -1"),
        ({"callbacks": [lumen.EarlyStopping]}, r"Pass an object, not a class"),
        ({"logger": "csv"}, r"logger: got 'csv'"),
        ({"seed": -1}, r"seed: got -1"),
        ({"min_epochs": 3, "max_epochs": 2}, r"min_epochs with max_epochs: 3 and 2"),
        ({"val_check_interval": 0.5, "check_val_every_n_epoch": None}, r"check_val_every_n_epoch=None"),
        ({"enable_progress_bar": False, "callbacks": [lumen.ProgressBar()]}, r"enable_progress_bar=False"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lumen.Trainer(**arguments)


def test_no_training_step(tmp_path: Path) -> None:
    with pytest.raises(ModuleError, match=r"NoStep\.training_step: not written"):
        quiet(tmp_path).fit(NoStep(), loader(8))


@pytest.mark.parametrize("returned", [None, 3, [], {"optimiser": 1}, {"lr_scheduler": 1}, ([], [])])
def test_nonsense_from_configure_optimizers(tmp_path: Path, returned: Any) -> None:
    class Bad(NeverTrained):
        def configure_optimizers(self) -> Any:
            return returned

    with pytest.raises(ModuleError, match="configure_optimizers"):
        quiet(tmp_path).fit(Bad(), loader(8))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"interval": "steps"}, "Did you mean 'step'"),
        ({"frequency": 0}, "frequency"),
        ({"intervall": "step"}, "Did you mean 'interval'"),
    ],
)
def test_a_misspelt_scheduler_configuration(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    class Bad(NeverTrained):
        def configure_optimizers(self) -> Any:
            scheduler = paddle.optimizer.lr.NoamDecay(8, 10)
            optimizer = paddle.optimizer.SGD(learning_rate=scheduler, parameters=self.parameters())
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **config}}

    with pytest.raises(ConfigError, match=message):
        quiet(tmp_path).fit(Bad(), loader(8))


class Foreign:
    """A loader of another framework, as far as lumen can tell."""

    __module__ = "torch.utils.data.dataloader"

    def __iter__(self) -> Any:
        return iter([])


Foreign.__name__ = Foreign.__qualname__ = "DataLoader"


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        list,
        lambda: loader(0),
        Foreign,
        lambda: 17,
        lambda: Rows(4),
        lambda: (batch for batch in [1, 2]),
    ],
    ids=["none", "empty list", "empty dataset", "torch", "number", "dataset", "generator"],
)
def test_loaders_that_cannot_be_trained_on(tmp_path: Path, make: Any) -> None:
    with pytest.raises(DataError) as caught:
        quiet(tmp_path, max_epochs=2).fit(NeverTrained(), make())
    assert caught.value.do, "an error says what to do"
    assert "train_dataloaders" in str(caught.value)


def test_a_validation_loader_without_validation_step(tmp_path: Path) -> None:
    class NoValidation(NoStep):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise AssertionError

    with pytest.raises(ModuleError, match="validation_step"):
        quiet(tmp_path).fit(NoValidation(), loader(8), loader(8))


@pytest.mark.parametrize("callback", [lumen.ModelCheckpoint(monitor="val_ac"), lumen.EarlyStopping("val_ac")])
def test_a_monitor_that_does_not_exist(tmp_path: Path, callback: Any) -> None:
    with pytest.raises(ConfigError, match=r"'val_ac'.*(Did you mean 'val_acc'|val_acc)"):
        quiet(tmp_path, max_epochs=1, callbacks=[callback]).fit(Classifier(), loader(8), loader(8))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda x: None, "got None"),
        (lambda x: 1.5, "float"),
        (lambda x: {"los": x}, "a dict with 'los'"),
        (lambda x: paddle.stack([x, x]), r"shape \[2"),
        (lambda x: x.detach(), "without a gradient"),
    ],
)
def test_what_training_step_may_not_return(tmp_path: Path, loss: Any, message: str) -> None:
    class Bad(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return loss(self.loss(batch)[0])

    with pytest.raises(ModuleError, match=message):
        quiet(tmp_path, max_epochs=1).fit(Bad(), loader(8))


def test_a_module_that_is_none_and_both_kinds_of_data(tmp_path: Path) -> None:
    with pytest.raises(ModuleError, match=r"lumen\.Module"):
        quiet(tmp_path).fit(paddle.nn.Linear(4, 3), loader(8))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="datamodule"):
        quiet(tmp_path).fit(Classifier(), loader(8), datamodule=lumen.DataModule())
    with pytest.raises(DataError, match="train_dataloader"):
        quiet(tmp_path).fit(Classifier(), datamodule=lumen.DataModule())


def test_an_interval_longer_than_the_epoch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most the 2 batches"):
        quiet(tmp_path, val_check_interval=3).fit(NeverTrained(), loader(8), loader(8))


def test_values_that_are_no_numbers_and_calls_outside_of_a_run(tmp_path: Path) -> None:
    class Bad(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("x", batch[0])
            return None

    with pytest.raises(DataError, match=r"shape \[4, 4\].*mean"):
        quiet(tmp_path).fit(Bad(), loader(8))
    trainer = quiet(tmp_path)
    for ask in (trainer.request_stop, lambda: trainer.save_checkpoint("x"), trainer.validate):
        with pytest.raises(LumenError):
            ask()
    with pytest.warns(UserWarning, match="without a Trainer"):
        Classifier().log("x", 1.0)


def test_steps_and_optimizers_of_the_wrong_form(tmp_path: Path) -> None:
    class TooMany(NeverTrained):
        def training_step(self, batch: Any, batch_idx: int, more: Any, most: Any) -> Any:  # type: ignore[override]
            raise AssertionError

    class ByName(NeverTrained):
        def training_step(self, batch: Any, *, batch_idx: int) -> Any:  # type: ignore[override]
            raise AssertionError

    class Outside(NeverTrained):
        def configure_optimizers(self) -> Any:
            return paddle.optimizer.SGD(parameters=paddle.nn.Linear(2, 2).parameters())

    for module in (TooMany(), ByName()):
        with pytest.raises(ModuleError, match=r"allowed: training_step\(self, batch, batch_idx\)"):
            quiet(tmp_path).fit(module, loader(8))
    with pytest.raises(ModuleError, match="a parameter that is not the module's"):
        quiet(tmp_path).fit(Outside(), loader(8))


def test_a_second_trainer_of_a_script_with_other_devices(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import lumen\n"
        "from lumen_tests.models import Classifier, loader\n"
        "for devices in (1, 2):\n"
        "    trainer = lumen.Trainer(accelerator='cpu', devices=devices, max_epochs=0, logger=False)\n"
        "    trainer.fit(Classifier(), loader(8, 4))\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(Path(lumen.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "WorldError: devices: cpu with 2 ranks; allowed: cpu with 1" in done.stderr
