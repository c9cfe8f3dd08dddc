"""What only a GPU can show; skipped, with the reason, where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumen
from lumen.shell.paddle_shim import paddle
from lumen.shell.transfer import to_device
from lumen_tests.models import Classifier, digest, loader, quiet

pytestmark = pytest.mark.gpu


def fit(root: Path, **options: Any) -> Classifier:
    lumen.seed_everything(1)
    module = Classifier()
    quiet(root, max_epochs=2, **({"accelerator": "gpu", "devices": 1} | options)).fit(module, loader(40), loader(10))
    return module


def test_a_fit_on_a_gpu_is_that_on_a_cpu(tmp_path: Path) -> None:
    on_gpu, on_cpu = fit(tmp_path), fit(tmp_path, accelerator="cpu")
    for mine, theirs in zip(on_gpu.parameters(), on_cpu.parameters(), strict=True):
        assert mine.place.is_gpu_place()
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=1e-4)


def test_batches_reach_the_gpu_whole_while_it_is_busy() -> None:
    place = paddle.CUDAPlace(0)
    busy = paddle.randn([2000, 2000])
    for size in (1, 10**3, 10**6):
        for kind in (np.arange, lambda n: paddle.arange(n).cpu()):
            for _ in range(20):
                busy = busy @ busy / 2000.0
                (moved,) = to_device([kind(size)], place)
                assert moved.place.is_gpu_place()
                np.testing.assert_array_equal(moved.numpy(), np.arange(size))


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_casts_in_training_and_in_evaluation(tmp_path: Path, precision: str) -> None:
    seen: list[tuple[bool, str]] = []

    class Watching(Classifier):
        def loss(self, batch: Any) -> tuple[Any, Any]:
            seen.append((self.training, str(self.net[0](batch[0]).dtype)))
            return super().loss(batch)

    module = Watching()
    quiet(tmp_path, max_epochs=1, accelerator="gpu", devices=1, precision=precision).fit(module, loader(16), loader(8))
    word = "bfloat16" if precision == "bf16-mixed" else "float16"
    assert {training for training, _ in seen} == {True, False}
    assert all(kind.endswith(word) for _, kind in seen)
    assert all(np.isfinite(parameter.numpy()).all() for parameter in module.parameters())


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_a_resume_on_a_gpu_is_exact(tmp_path: Path, precision: str) -> None:
    def run(max_steps: int, ckpt_path: str | None) -> str:
        lumen.seed_everything(2)
        module = Classifier(dropout=0.5)
        trainer = quiet(
            tmp_path, max_steps=max_steps, accelerator="gpu", devices=1, precision=precision, deterministic=True, seed=4
        )
        trainer.fit(module, loader(40, shuffle=True), ckpt_path=ckpt_path)
        return digest(module)

    whole = run(15, None)
    run(7, None)
    assert run(15, "last") == whole


@pytest.mark.skipif(paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_train_to_equal_weights(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = Path(__file__).parents[1] / "dist" / "train_script.py"
    command = [sys.executable, str(script), "--out", str(tmp_path), "--devices", "2", "--accelerator", "gpu"]
    subprocess.run(command, check=True, timeout=300)
    first, second = (np.load(tmp_path / f"weights-{rank}.npz") for rank in (0, 1))
    for name in first.files:
        np.testing.assert_array_equal(first[name], second[name])
