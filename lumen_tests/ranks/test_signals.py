"""Signals: the run saves, stops at one step on all ranks, says so by its exit code, and goes on exactly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lumen
from lumen.errors import ConfigError
from lumen.shell.checkpoint_io import read
from lumen.shell.signals import signal_numbers
from lumen_tests.ranks.test_launcher import all_gone, environ

pytestmark = pytest.mark.dist
MODULE = ["-m", "lumen_tests.ranks.signal_script"]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The program, with all its ranks beyond their first steps."""
    command = [sys.executable, *MODULE, "--out", str(folder), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ(), start_new_session=True
    )
    ranks = 2 if "2" in arguments else 1
    deadline = time.monotonic() + 60
    while len(list(folder.glob("ready-*"))) < ranks:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def finish(folder: Path, *arguments: str) -> Any:
    """Runs the program to its end."""
    done = subprocess.run(
        [sys.executable, *MODULE, "--out", str(folder), *arguments],
        env=environ(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "result-0.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an unbroken run ends with, on one rank and on two."""
    return {devices: finish(tmp_path_factory.mktemp(f"whole{devices}"), "--devices", devices) for devices in ("1", "2")}


@pytest.mark.parametrize(
    ("devices", "to", "number", "code"),
    [
        ("1", "rank 0", signal.SIGTERM, 143),
        ("1", "rank 0", signal.SIGUSR1, 138),
        ("2", "rank 1", signal.SIGTERM, 143),
        ("2", "the supervisor", signal.SIGTERM, 143),
        ("2", "the supervisor", signal.SIGUSR1, 138),
        ("2", "all its processes", signal.SIGTERM, 143),
        ("2", "all its processes", signal.SIGHUP, 129),
    ],
)
def test_a_signal_saves_and_stops_all_ranks_at_one_step_and_the_run_goes_on_exactly(
    whole: dict[str, Any], tmp_path: Path, devices: str, to: str, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path, "--devices", devices, "--pause", "0.05", "--workers", "1")
    if to == "all its processes":  # as a terminal, or a job's limit, does it: data workers included
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid if to == "the supervisor" else int((tmp_path / f"pid-{to[-1]}").read_text()), number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert all_gone(tmp_path)
    assert "Traceback" not in errors
    (saved,) = tmp_path.glob("lumen_logs/version_0/checkpoints/last")
    step = read(saved).manifest["step"]
    assert 3 <= step < 40
    assert devices == "1" or step % 5 == 0  # where the ranks share what they log
    assert finish(tmp_path, "--devices", devices) == whole[devices]


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, "--pause", "3")  # in a step, which the first signal lets end
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.7)  # two within half a second are taken for one
    started = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=20)
    assert time.monotonic() - started < 2
    assert process.returncode in (-signal.SIGTERM, 143)


def test_which_signals_is_the_users_choice() -> None:
    assert signal_numbers(["SIGUSR2"]) == (signal.SIGUSR2,)
    assert lumen.Trainer(stop_signals=[]).stop_signals == ()
    for wrong, message in (
        ("SIGTERM", "a list of names"),
        (["SIGTREM"], "Did you mean 'SIGTERM'"),
        (["SIGKILL"], "SIG"),
    ):
        with pytest.raises(ConfigError, match=message):
            lumen.Trainer(stop_signals=wrong)
