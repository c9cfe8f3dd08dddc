"""Ways of starting x faults: over in seconds, not with 0, the first traceback last, hooks called, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from lumen_tests.ranks.test_launcher import all_gone, environ
from lumen_tests.ranks.test_two_ranks import free_port

SCRIPT = str(Path(__file__).with_name("fault_script.py"))
WAYS = {"self": [], "paddle": ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", "log"]}
HANG = 5.0
pytestmark = pytest.mark.dist
slow = pytest.mark.slow


@attrs.frozen
class End:
    """How a job ended: its exit code, its words, and the seconds between the fault and its end."""

    code: int
    words: str
    seconds: float


def begin(folder: Path, way: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir()
    command = [sys.executable, *WAYS[way], SCRIPT, "--out", str(folder), *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environ(), "TMPDIR": str(folder / "tmp")},
        cwd=folder,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], folder: Path, *, gone: bool = True) -> End:
    words, _ = process.communicate(timeout=60)
    seconds = time.time() - float((folder / "fault-time").read_text())
    assert not gone or all_gone(folder, within=2.0 if process.returncode != -signal.SIGKILL else 10.0)
    assert not list((folder / "tmp").iterdir())
    for worker in folder.glob("pid-worker-*"):  # Paddle's data workers keep batches in shared memory
        assert not list(Path("/dev/shm").glob(f"paddle_{worker.read_text()}_*"))
    return End(process.returncode, words, seconds)


# what happens, where, on which rank; the exit code under lumen's own supervisor; what stands last; who is told
CASES = [
    ("raise", "training_step", 1, 1, "ValueError: bad sample", "01"),
    pytest.param("raise", "training_step", 0, 1, "ValueError: bad sample", "01", marks=slow),
    ("raise", "validation_step", 1, 1, "ValueError: bad sample", "01"),
    pytest.param("raise", "on_save_checkpoint", 0, 1, "ValueError: bad sample", "01", marks=slow),
    pytest.param("raise", "on_save_checkpoint", 1, 1, "ValueError: bad sample", "01", marks=slow),
    pytest.param("raise", "on_fit_start", 1, 1, "ValueError: bad sample", "01", marks=slow),
    pytest.param("raise", "before", 1, 1, "ValueError: bad sample", "", marks=slow),
    pytest.param("exit 0", "training_step", 1, 1, "SystemExit: 0", "01", marks=slow),
    pytest.param("leave", "training_step", 1, 1, "ended with exit code 0 while the others went on", "0", marks=slow),
    ("kill", "training_step", 0, 137, "was ended by SIGKILL", "1"),
    pytest.param("kill", "training_step", 1, 137, "was ended by SIGKILL", "0", marks=slow),
    pytest.param("kill", "validation_step", 1, 137, "was ended by SIGKILL", "0", marks=slow),
    pytest.param("stop", "training_step", 1, 137, "does not answer", "0", marks=slow),
    pytest.param("stop", "training_step", 0, 137, "does not answer", "1", marks=slow),
    ("sleep", "training_step", 0, 1, "time.sleep(1000)", "01"),
    pytest.param("sleep", "validation_step", 1, 1, "time.sleep(1000)", "01", marks=slow),
]


@pytest.mark.parametrize(("what", "where", "rank", "code", "last", "told"), CASES)
def test_under_lumens_supervisor(
    tmp_path: Path, what: str, where: str, rank: int, code: int, last: str, told: str
) -> None:
    arguments = ["--what", what, "--where", where, "--ranks", str(rank), "--workers", str(2 * (what == "kill"))]
    hangs = what in ("stop", "sleep")
    found = end(begin(tmp_path, "self", *arguments, "--hang-timeout", str(HANG if hangs else 300)), tmp_path)
    assert found.code == code, found.words
    assert found.seconds < 10 + HANG * hangs
    report = found.words[found.words.index(f"lumen: rank {rank} failed first") :]
    assert report.count("lumen: rank") == 1  # where the others stood is told before
    assert last in "\n".join(report.rstrip().splitlines()[-2:])
    assert found.words.count("ValueError: bad sample\nlumen: in fit") == (what == "raise" and where != "before")
    if told:
        assert f"lumen: rank {1 - rank}: " in found.words
    assert_told(tmp_path, told)


def assert_told(folder: Path, ranks: str) -> None:
    """`on_exception` was called on these ranks, and collectives there, lumen's and Paddle's, were refused at once."""
    assert sorted(path.name for path in folder.glob("told-*")) == [f"told-{rank}" for rank in ranks]
    for rank in ranks:
        words = (folder / f"told-{rank}").read_text()
        assert "a collective after a failure" in words
        assert "a collective: a call after a failure" in words


@pytest.mark.parametrize(
    ("what", "where", "rank", "last"),
    [
        ("raise", "training_step", 1, "ValueError: bad sample"),
        pytest.param("raise", "validation_step", 0, "ValueError: bad sample", marks=slow),
        pytest.param("raise", "on_save_checkpoint", 1, "ValueError: bad sample", marks=slow),
        pytest.param("exit 0", "training_step", 1, "SystemExit: 0", marks=slow),
        pytest.param("kill", "training_step", 1, "it died without a word", marks=slow),
        pytest.param("kill", "training_step", 0, "rank 0", marks=slow),
        pytest.param("stop", "training_step", 1, "does not answer", marks=slow),
        pytest.param("sleep", "training_step", 0, "time.sleep(1000)", marks=slow),
    ],
)
def test_under_paddles_launcher(tmp_path: Path, what: str, where: str, rank: int, last: str) -> None:
    """The ranks agree among themselves; Paddle's launcher chooses the exit code and shows the end of a rank's log."""
    arguments = ["--what", what, "--where", where, "--ranks", str(rank), "--workers", str(2 * (what == "kill"))]
    hangs = what in ("stop", "sleep")
    found = end(begin(tmp_path, "paddle", *arguments, "--hang-timeout", str(HANG if hangs else 300)), tmp_path)
    assert found.code != 0
    assert found.seconds < 10 + HANG * hangs
    logs = "".join(path.read_text() for path in sorted((tmp_path / "log").glob("workerlog.*")))
    other = (tmp_path / "log" / f"workerlog.{1 - rank}").read_text()
    assert last in "\n".join(other.rstrip().splitlines()[-3:]), logs
    assert_told(tmp_path, "01" if what in ("raise", "exit 0", "sleep") else str(1 - rank))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "where", "rank", "last"),
    [
        ("raise", "training_step", 1, "ValueError: bad sample"),
        ("raise", "on_save_checkpoint", 0, "ValueError: bad sample"),
        ("kill", "training_step", 0, "rank 0"),
        ("stop", "training_step", 1, "does not answer"),
    ],
)
def test_tasks_of_a_slurm_step(tmp_path: Path, what: str, where: str, rank: int, last: str) -> None:
    """Nobody watches over the tasks: each ends by itself, and says who failed first."""
    (tmp_path / "tmp").mkdir()
    step = {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2"}
    step |= {"SLURM_JOB_NODELIST": "localhost", "SLURM_NODEID": "0", "MASTER_PORT": str(free_port())}
    arguments = ["--out", str(tmp_path), "--what", what, "--where", where, "--ranks", str(rank)]
    tasks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, *arguments, "--hang-timeout", str(HANG if what == "stop" else 300)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **environ(),
                **step,
                "SLURM_PROCID": str(task),
                "SLURM_LOCALID": str(task),
                "TMPDIR": str(tmp_path / "tmp"),
            },
            cwd=tmp_path,
        )
        for task in range(2)
    ]
    found = end(tasks[1 - rank], tmp_path, gone=what != "stop")
    tasks[rank].kill()
    tasks[rank].communicate(timeout=20)
    assert found.code != 0
    assert found.seconds < 10 + HANG * (what == "stop")
    assert last in "\n".join(found.words.rstrip().splitlines()[-3:]), found.words
    assert_told(tmp_path, "01" if what == "raise" else str(1 - rank))


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("wider", "the module's parameter net.3.weight: [8, 3] float32 on rank 0 and [8, 5] float32 on rank 1"),
        pytest.param("frozen", "net.0.bias: [8] float32 on rank 0 and [8] float32, frozen on rank 1", marks=slow),
        ("diverge", "the weights of net.3.weight: other ones on rank 1 than on rank 0, after step 12"),
        pytest.param("diverge", "the weights of net.3.weight: other ones on rank 1 than on rank 0", marks=slow),
    ],
)
def test_ranks_that_differ_are_named_with_what_differs(tmp_path: Path, what: str, error: str) -> None:
    interval = "4 steps" if "step 12" in error else "1 epoch"
    process = begin(tmp_path, "self", "--what", what, "--check-replicas", interval)
    words, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    last = words[words.rindex("failed first") :]
    assert f"lumen.errors.WorldError: {error}" in last or (what == "frozen" and error in last)


SIGNALS = [
    ("ctrl-c", [signal.SIGINT], "group", 130),
    pytest.param("ctrl-c, to the parent alone", [signal.SIGINT], "parent", 130, marks=slow),
    pytest.param("ctrl-c twice", [signal.SIGINT, signal.SIGINT], "group", 130, marks=slow),
    pytest.param("the parent is killed", [signal.SIGKILL], "parent", -9, marks=slow),
    pytest.param("a second SIGTERM", [signal.SIGTERM, signal.SIGTERM], "parent", 143, marks=slow),
]


@pytest.mark.parametrize(("name", "numbers", "to", "code"), SIGNALS)
def test_a_signal_to_a_job_that_stands_still(
    tmp_path: Path, name: str, numbers: Sequence[signal.Signals], to: str, code: int
) -> None:
    process = begin(tmp_path, "self", "--what", "wait")
    deadline = time.monotonic() + 40
    while not (tmp_path / "waits").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    (tmp_path / "fault-time").write_text(repr(time.time()))
    for number in numbers:
        (os.killpg if to == "group" else os.kill)(process.pid, number)
        time.sleep(0.7)
    found = end(process, tmp_path)
    assert found.code == code, found.words
    assert found.seconds < 10
    if name.endswith(("ctrl-c", "alone")):
        assert found.words.rstrip().splitlines()[-1] in ("lumen: interrupted", "KeyboardInterrupt"), found.words
        assert_told(tmp_path, "01")
