"""One recipe, started in every way: two ranks end with the same weights, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lumen_tests.ranks.test_two_ranks import ROOT, free_port

pytestmark = [pytest.mark.dist, pytest.mark.slow]
RECIPE = str(ROOT / "recipes" / "digits.py")
NOTEBOOK = """
import runpy
recipe = runpy.run_path({recipe!r})
recipe["main"](type("Args", (), dict(devices=2, max_epochs=20, resume=False, root={root!r}, tiny=True)))
"""


def start(command: list[str], folder: Path, more: Mapping[str, str]) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, cwd=folder
    )


def last_words(*processes: subprocess.Popen[str]) -> str:
    words = [process.communicate(timeout=150)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), words
    (line,) = [line for text in words for line in text.splitlines() if "test accuracy" in line]
    return line[line.index("test accuracy") :]


def recipe(folder: Path, *arguments: str) -> list[str]:
    return [*arguments, "--tiny", "--root", str(folder / "run")]


def by_script(folder: Path) -> str:
    return last_words(start([sys.executable, *recipe(folder, RECIPE, "--devices", "2")], folder, {}))


def by_module(folder: Path) -> str:
    return last_words(start([sys.executable, *recipe(folder, "-m", "recipes.digits", "--devices", "2")], folder, {}))


def by_paddle(folder: Path) -> str:
    launch = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(folder / "log")]
    start([sys.executable, *launch, *recipe(folder, RECIPE)], folder, {}).communicate(timeout=150)
    words = (folder / "log" / "workerlog.0").read_text()
    return words[words.index("test accuracy") :].splitlines()[0]


def by_two_nodes(folder: Path) -> str:
    launch = ["-m", "paddle.distributed.launch", "--nnodes", "2", "--master", f"127.0.0.1:{free_port()}"]
    nodes = [
        start([sys.executable, *launch, "--log_dir", str(folder / f"log{node}"), *recipe(folder, RECIPE)], folder, {})
        for node in range(2)
    ]
    for node in nodes:
        node.communicate(timeout=150)
    words = "".join(path.read_text() for path in folder.glob("log?/workerlog.*"))
    return words[words.index("test accuracy") :].splitlines()[0]


def by_slurm(folder: Path) -> str:
    step = {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2"}
    step |= {"SLURM_JOB_NODELIST": "localhost", "SLURM_NODEID": "0", "MASTER_PORT": str(free_port())}
    tasks = [{**step, "SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]
    return last_words(*[start([sys.executable, *recipe(folder, RECIPE)], folder, task) for task in tasks])


def by_prompt(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-i"],
        input=NOTEBOOK.format(recipe=RECIPE, root=str(folder / "run")),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=folder,
    )
    assert "test accuracy" in done.stdout, done.stderr
    return done.stdout[done.stdout.index("test accuracy") :].splitlines()[0]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    return by_script(tmp_path_factory.mktemp("script"))


@pytest.mark.parametrize("way", [by_module, by_paddle, by_two_nodes, by_slurm, by_prompt])
def test_every_way_of_starting_ends_with_the_same_weights(
    way: Callable[[Path], str], expected: str, tmp_path: Path
) -> None:
    assert "weights" in expected
    assert way(tmp_path) == expected
