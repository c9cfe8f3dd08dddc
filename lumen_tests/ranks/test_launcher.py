"""The supervisor of the ranks: every way of failing is over in seconds and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.dist

# connects two ranks, then does what the argument says
PROGRAM = """
import os, sys, time
from lumen.core.devices import plan_devices
from lumen.core.faults import Position
from lumen.core.strategy import FleetStrategy
from lumen.core.supervising import Supervision
from lumen.core.world import world_from_env
from lumen.shell.ranks.cluster import connect
from lumen.shell.ranks.supervisor import launch

def main(what, folder):
    world, plan = world_from_env(os.environ), plan_devices("cpu", 2, gpus=0)
    if what == "raise before" and world.size > 1 and world.rank == 1:
        raise OSError("no data here")
    if world.size == 1:
        launch(plan, Supervision(), (15,))
    open(os.path.join(folder, f"pid-{world.rank}"), "w").write(str(os.getpid()))
    cluster = connect(plan, world, FleetStrategy())
    cluster.enter(None, Position, int, print)
    if what == "report":
        print("args", sys.argv[1:], sys.flags.utf8_mode, sys.flags.optimize, cluster.gather("ranks", world.rank), flush=True)
    elif what == "exit 0" and world.rank == 1:
        sys.exit(0)
    elif what == "exit 7" and world.rank == 1:
        os._exit(7)
    elif what == "raise" and world.rank == 1:
        try:
            raise ValueError("bad sample")
        except ValueError as error:
            cluster.member.fail(error, Position())
            raise
    elif what == "wait":
        open(os.path.join(folder, f"ready-{world.rank}"), "w").close()
        time.sleep(100)
    cluster.wait("end")
    cluster.member.leave()

main(sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(command: list[str], folder: Path, expect: int) -> Any:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environ(), timeout=60, check=False, cwd=folder
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert all_gone(folder)
    return done


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("pid-*") if path.read_text()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_gone(folder: Path, within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while any(map(alive, pids(folder))):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_the_command_line_is_kept_flags_module_and_text_included(program: Path, tmp_path: Path) -> None:
    where = ["report", str(tmp_path)]
    for command in (
        ["-X", "utf8", "-O", str(program), *where],
        ["-X", "utf8", "-O", "-m", "program", *where],
        ["-X", "utf8", "-O", "-c", PROGRAM, *where],
    ):
        done = run(command, tmp_path, 0)
        line = f"args {where} 1 1 [0, 1]"
        assert line in done.stdout
        assert f"[rank 1] {line}" in done.stderr


@pytest.mark.parametrize(
    ("what", "code", "last"),
    [
        ("raise", 1, "rank 1 failed first:.*ValueError: bad sample"),
        ("raise before", 1, "rank 1 failed first:.*OSError: no data here"),
        ("exit 7", 7, "rank 1 failed first: it ended with exit code 7"),
    ],
)
def test_a_rank_that_fails_ends_all_with_its_words_last(
    program: Path, tmp_path: Path, what: str, code: int, last: str
) -> None:
    import re

    started = time.monotonic()
    done = run([str(program), what, str(tmp_path)], tmp_path, code)
    assert time.monotonic() - started < 20
    assert re.search(last, done.stderr, re.DOTALL)
    if what != "exit 7":
        assert done.stderr.rstrip().splitlines()[-1].endswith(last.rpartition("*")[2])


def test_a_rank_that_leaves_early_while_others_wait_is_a_failure(program: Path, tmp_path: Path) -> None:
    done = run([str(program), "exit 0", str(tmp_path)], tmp_path, 1)
    assert done.stderr.endswith("lumen: rank 1 failed first: it ended with exit code 0 while the others went on\n")
    assert "lumen: rank 0: outside of a run: lumen.errors.RankError" in done.stderr


def start(program: Path, folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, str(program), "wait", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(),
        start_new_session=True,
    )
    deadline = time.monotonic() + 40
    while len(list(folder.glob("ready-*"))) < 2:
        assert time.monotonic() < deadline, "the ranks did not start"
        assert process.poll() is None
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(
    ("number", "group", "code"),
    [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143), (signal.SIGKILL, False, -9)],
    ids=["ctrl-c", "sigterm", "sigkill"],
)
def test_a_supervisor_that_is_ended_takes_its_ranks_along(
    program: Path, tmp_path: Path, number: signal.Signals, group: bool, code: int
) -> None:
    process = start(program, tmp_path)
    started = time.monotonic()
    (os.killpg if group else os.kill)(process.pid, number)
    process.communicate(timeout=20)
    assert process.returncode == code
    assert all_gone(tmp_path)
    assert time.monotonic() - started < 10


def test_a_killed_rank_ends_the_job_and_is_named(program: Path, tmp_path: Path) -> None:
    process = start(program, tmp_path)
    started = time.monotonic()
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 137
    assert errors.endswith("lumen: rank 1 failed first: it was ended by SIGKILL\n")
    assert all_gone(tmp_path)
    assert time.monotonic() - started < 10
