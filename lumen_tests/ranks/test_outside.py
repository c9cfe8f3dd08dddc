"""The program calls `fleet.init` and wraps the module: lumen wraps nothing, and says what it cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lumen_tests.ranks.test_two_ranks import MODULE, ROOT, result, run

pytestmark = pytest.mark.dist
SCRIPT = str(Path(__file__).with_name("outside_script.py"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of two ranks found."""
    folder = tmp_path_factory.mktemp("outside")
    launch = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(folder / "log")]
    run([*launch, SCRIPT, str(folder)], timeout=200)
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(("case", "more"), [("wrapped", []), ("accumulated", ["--accumulate", "2"]), ("inner", [])])
def test_a_wrapped_module_trains_to_the_weights_that_lumen_trains_it_to(
    case: str, more: list[str], found: list[Any], tmp_path: Path
) -> None:
    run(["-m", MODULE, "--out", str(tmp_path), "--devices", "2", *more])
    first, second = (rank[case] for rank in found)
    assert first == second
    assert first["size"] == 2
    assert first["tested"] == result(tmp_path)["tested"]
    if case != "inner":  # its parameters have other names
        assert first["digest"] == result(tmp_path)["digest"]


def test_what_is_not_wrapped_is_an_error_that_says_what_to_do(found: list[Any]) -> None:
    for rank in found:
        assert "ModuleError" in rank["plain"]
        assert "paddle.DataParallel(Classifier(...))" in rank["plain"]
        assert "a paddle.DataParallel around a Linear" in rank["layer"]
        assert "the module's parameter extra.weight" in rank["partly"]


def test_what_is_not_used_is_told_once(found: list[Any]) -> None:
    for words in ("Trainer(strategy=) is not used", "on cpu with 2 ranks on this node: 4 of cpu"):
        told = [[line for line in rank["warned"] if words in line] for rank in found]
        assert [len(lines) for lines in told] == [1, 1], words


def test_on_one_rank_a_wrapped_module_trains_as_it_would_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, lumen, paddle\n"
        "from lumen_tests.models import Classifier, digest, loader\n"
        "lumen.seed_everything(4)\n"
        "module = Classifier()\n"
        "given = paddle.DataParallel(module) if sys.argv[1] == 'wrapped' else module\n"
        "devices = int(sys.argv[2])\n"
        "trainer = lumen.Trainer(accelerator='cpu', devices=devices, max_epochs=1, seed=5, logger=False)\n"
        "trainer.fit(given, loader(32, 8))\n"
        "print('digest', digest(module))\n"
    )

    def digest(*arguments: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, str(program), *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        return done.stdout[done.stdout.find("digest") :].split("\n")[0], done.stderr

    assert digest("wrapped", "1")[0] == digest("plain", "1")[0] != ""
    assert "ModuleError: module: a paddle.DataParallel, before fleet.init" in digest("wrapped", "2")[1]
