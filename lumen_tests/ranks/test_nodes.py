"""Several nodes, as Paddle's launcher starts them: run twice on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lumen_tests.ranks.test_two_ranks import ROOT, SCRIPT, assert_same_weights, free_port, result, run

pytestmark = pytest.mark.dist


def test_two_nodes_train_to_the_weights_of_one_process(tmp_path: Path) -> None:
    master, out, alone = f"127.0.0.1:{free_port()}", tmp_path / "out", tmp_path / "alone"
    out.mkdir()
    alone.mkdir()
    launch = [sys.executable, "-m", "paddle.distributed.launch", "--nnodes", "2", "--master", master]
    launch += ["--nproc_per_node", "1", "--log_dir"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    nodes = [
        subprocess.Popen(
            [*launch, str(tmp_path / f"log-{node}"), SCRIPT, "--out", str(out)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(2)
    ]
    said = [node.communicate(timeout=150)[0] for node in nodes]
    logs = [path.read_text()[-2000:] for path in tmp_path.glob("log-*/workerlog.*")]
    assert [node.returncode for node in nodes] == [0, 0], (said, logs)
    assert result(out)["size"] == 2
    assert result(out)["digest"] == result(out, 1)["digest"]
    run(["-m", "lumen_tests.ranks.train_script", "--out", str(alone), "--batch-size", "32"])
    assert_same_weights(alone, out, 1e-5)


@pytest.mark.parametrize(
    ("rank", "why"), [(0, "rank 1, 2 did not come to {}"), (1, "nobody at {} for 2 s, where rank 0 should be")]
)
def test_ranks_that_do_not_meet_are_named_with_the_address(rank: int, why: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import lumen\n"
        "from lumen_tests.models import Classifier, loader\n"
        "strategy = lumen.FleetStrategy(connect_timeout=2)\n"
        "trainer = lumen.Trainer(accelerator='cpu', strategy=strategy, max_epochs=1, logger=False)\n"
        "trainer.fit(Classifier(), loader(8, 4))\n"
    )
    master = f"127.0.0.1:{free_port()}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PADDLE_MASTER": master}
    environ |= {"PADDLE_TRAINERS_NUM": "3", "PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": "127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert f"ConnectError: the ranks: {why.format(master)}" in done.stderr
