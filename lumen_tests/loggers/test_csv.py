"""CSVLogger: exact numbers, widening, crashes, resuming, versions, folders that cannot be written to."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lumen.core.progress import COUNTERS
from lumen.errors import ConfigError
from lumen.loggers.base import Logger
from lumen.loggers.csv import CSVLogger


def at(step: int) -> dict[str, int | float]:
    return {"batch": 2 * step, "step": step, "epoch": step // 10, "samples": 64 * step, "seconds": 0.25 * step}


def rows(logger: CSVLogger) -> list[dict[str, str]]:
    with logger.path.open(newline="") as file:
        return list(csv.DictReader(file))


def steps(logger: CSVLogger) -> list[int]:
    return [int(row["step"]) for row in rows(logger)]


@pytest.fixture
def logger(tmp_path: Path) -> CSVLogger:
    return CSVLogger(tmp_path)


def test_a_row_has_all_counters_first_and_then_the_values(logger: CSVLogger) -> None:
    logger.log_metrics({"loss": 0.5, "acc": 1}, at(4))
    assert logger.path.read_text() == "batch,step,epoch,samples,seconds,loss,acc\n8,4,0,256,1.0,0.5,1\n"


def test_a_new_name_widens_the_file_and_keeps_what_is_there(logger: CSVLogger) -> None:
    logger.log_metrics({"loss": 0.5}, at(1))
    logger.log_metrics({"val_acc": 0.9}, at(1))
    logger.log_metrics({"loss": 0.4}, at(2))
    assert [(row["step"], row["loss"], row["val_acc"]) for row in rows(logger)] == [
        ("1", "0.5", ""),
        ("1", "", "0.9"),
        ("2", "0.4", ""),
    ]
    assert list(rows(logger)[0]) == [*COUNTERS, "loss", "val_acc"]
    assert [path.name for path in Path(logger.log_dir).iterdir()] == ["metrics.csv"]  # nothing temporary is left


@given(st.lists(st.floats(), min_size=1, max_size=5))
@example([-0.0])
@settings(max_examples=50)
def test_every_float_reads_back_as_itself(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    logger = CSVLogger(tmp_path_factory.mktemp("logs"))
    logger.log_metrics({f"m{i}": value for i, value in enumerate(values)}, at(1))
    (row,) = rows(logger)
    for index, value in enumerate(values):
        read = float(row[f"m{index}"])
        assert read == value or (math.isnan(read) and math.isnan(value))
        assert math.copysign(1, read) == math.copysign(1, value) or math.isnan(value)


@pytest.mark.parametrize("name", ["a,b", 'quo"te', "per class/é 漢", "two\nlines", " padded "])
def test_any_name_may_be_logged(logger: CSVLogger, name: str) -> None:
    logger.log_metrics({name: 1.5}, at(1))
    logger.log_metrics({name: 2.5, "other": 0.0}, at(2))
    again = CSVLogger(logger.save_dir, version=0)
    again.resume(2)
    again.log_metrics({name: 3.5}, at(3))
    assert [row[name] for row in rows(logger)] == ["1.5", "2.5", "3.5"]


def test_numpy_numbers_are_written_as_numbers(logger: CSVLogger) -> None:
    np = pytest.importorskip("numpy")
    logger.log_metrics({"f": np.float64(0.1), "g": np.float32(0.5), "i": np.int64(7), "a": np.array(2.0)}, at(1))
    (row,) = rows(logger)
    assert [row[name] for name in "fgia"] == ["0.1", "0.5", "7", "2.0"]


@pytest.mark.parametrize("value", ["0.5", None, [1.0], object(), 1j])
def test_what_is_no_number_is_refused_and_leaves_no_trace(logger: CSVLogger, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"'loss'.*a number"):
        logger.log_metrics({"loss": value}, at(1))
    assert list(Path(logger.save_dir).iterdir()) == []


def test_the_name_of_a_counter_is_refused(logger: CSVLogger) -> None:
    with pytest.raises(ConfigError, match=r"'epoch'.*another name"):
        logger.log_metrics({"epoch": 3.0}, at(1))


# -- versions and folders ---------------------------------------------------------------------------------------------


def test_asking_where_creates_nothing(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "logs")
    assert logger.log_dir == str(tmp_path / "logs" / "lumen_logs" / "version_0")
    assert (logger.name, logger.version) == ("lumen_logs", 0)
    logger.resume(10)
    logger.save()
    logger.finalize("success")
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_the_next_free_number_and_stays(tmp_path: Path) -> None:
    for name in ("version_0", "version_9", "version_10", "version_x", "version_007", "other"):
        (tmp_path / "lumen_logs" / name).mkdir(parents=True)
    logger = CSVLogger(tmp_path)
    assert logger.version == 11
    (tmp_path / "lumen_logs" / "version_20").mkdir()
    assert logger.version == 11


def test_the_version_is_chosen_when_it_is_first_needed(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    (tmp_path / "lumen_logs" / "version_3").mkdir(parents=True)
    logger.log_metrics({"x": 1.0}, at(1))
    assert logger.version == 4


def test_two_runs_that_chose_one_number_keep_their_files_apart(tmp_path: Path) -> None:
    first, second = CSVLogger(tmp_path), CSVLogger(tmp_path)
    assert first.log_dir == second.log_dir
    first.log_metrics({"x": 1.0}, at(1))
    with pytest.warns(UserWarning, match=r"version_0 was taken by another run.*version_1"):
        second.log_hyperparams({"lr": 0.1})
    second.log_metrics({"x": 2.0}, at(1))
    assert [rows(one)[0]["x"] for one in (first, second)] == ["1.0", "2.0"]
    assert (Path(second.log_dir) / "hparams.json").exists()


def test_a_checkpoint_in_the_folder_does_not_make_it_taken(logger: CSVLogger) -> None:
    (Path(logger.log_dir) / "checkpoints" / "last").mkdir(parents=True)
    logger.log_metrics({"x": 1.0}, at(1))
    assert logger.version == 0


def test_a_given_version_is_gone_on_with(tmp_path: Path) -> None:
    CSVLogger(tmp_path, version="mine").log_metrics({"x": 1.0}, at(1))
    again = CSVLogger(tmp_path, version="mine")
    again.log_metrics({"y": 2.0}, at(2))
    assert again.log_dir == str(tmp_path / "lumen_logs" / "mine")
    assert [(row["x"], row["y"]) for row in rows(again)] == [("1.0", ""), ("", "2.0")]


def test_without_a_name_the_versions_lie_in_save_dir(tmp_path: Path) -> None:
    assert CSVLogger(tmp_path, name="").log_dir == str(tmp_path / "version_0")


def test_a_later_change_of_the_working_folder_does_not_move_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logger = CSVLogger("logs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    logger.log_metrics({"x": 1.0}, at(1))
    assert (tmp_path / "logs" / "lumen_logs" / "version_0" / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"save_dir": 3}, "save_dir"),
        ({"name": None}, "name"),
        ({"name": "/abs"}, "name"),
        ({"name": "../up"}, "name"),
        ({"version": -1}, "version"),
        ({"version": True}, "version"),
        ({"version": "a/b"}, "version"),
        ({"version": ""}, "version"),
        ({"version": ".."}, "version"),
        ({"version": 1.5}, "version"),
    ],
)
def test_what_cannot_be_a_folder_is_refused_at_once(arguments: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"CSVLogger\({named}\)"):
        CSVLogger(**{"save_dir": tmp_path, **arguments})


def test_a_save_dir_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"save_dir.*default_root_dir"):
        CSVLogger(tmp_path / "file").log_metrics({"x": 1.0}, at(1))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match=r"save_dir.*Permission denied"):
            CSVLogger(tmp_path).log_metrics({"x": 1.0}, at(1))
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_is_a_clear_error_and_the_next_row_is_whole(tmp_path: Path) -> None:
    """A process that may write 200 bytes per file: its rows end in an error, and resuming after it works."""
    script = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from lumen.errors import LumenError
from lumen.loggers.csv import CSVLogger
logger = CSVLogger({str(tmp_path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
written = 0
try:
    for step in range(100):
        logger.log_metrics({{"loss": 1 / 3}}, dict(batch=step, step=step, epoch=0, samples=step, seconds=0.0))
        written += 1
except LumenError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
logger.log_metrics({{"loss": 0.25}}, dict(batch=step, step=step, epoch=0, samples=step, seconds=0.0))
print(written)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "metrics.csv: got 'File too large'" in done.stdout or "No space left" in done.stdout
    written = int(done.stdout.split()[-1])
    logger = CSVLogger(tmp_path, version=0)
    assert 0 < written < 100
    assert steps(logger) == [*range(written), written]
    assert [row["loss"] for row in rows(logger)][-2:] == [repr(1 / 3), "0.25"]


def test_a_file_that_was_removed_in_the_run_is_begun_anew(logger: CSVLogger) -> None:
    logger.log_metrics({"x": 1.0}, at(1))
    logger.path.unlink()
    logger.path.parent.rmdir()
    logger.log_metrics({"x": 2.0}, at(2))
    assert steps(logger) == [2]


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_resuming_keeps_the_rows_up_to_the_step_and_appends(logger: CSVLogger) -> None:
    for step in range(1, 8):
        logger.log_metrics({"loss": 1 / step}, at(step))
    before = rows(logger)
    again = CSVLogger(logger.save_dir)
    again.adopt(str(Path(logger.log_dir) / "checkpoints" / "epoch=0-step=4"))
    again.resume(4)
    assert rows(again) == before[:4]
    again.log_metrics({"loss": 0.0, "new": 1.0}, at(5))
    assert steps(again) == [1, 2, 3, 4, 5]
    assert again.log_dir == logger.log_dir
    assert [row["loss"] for row in rows(again)[:4]] == [row["loss"] for row in before[:4]]


def test_resuming_in_the_same_process_forgets_what_it_knew(logger: CSVLogger) -> None:
    for step in (1, 2):
        logger.log_metrics({"loss": 0.5}, at(step))
    logger.resume(1)
    logger.log_metrics({"loss": 0.25}, at(2))
    assert steps(logger) == [1, 2]


def test_a_torn_last_line_is_dropped_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = CSVLogger(tmp_path / "whole")
    for step in (1, 2):
        whole.log_metrics({"loss": 1 / 3, "acc": 0.5}, at(step))
    data = whole.path.read_bytes()
    first = data.index(b"\n", data.index(b"\n") + 1) + 1
    for cut in range(first, len(data)):
        torn = CSVLogger(tmp_path / str(cut), version=0)
        torn.path.parent.mkdir(parents=True)
        for act in (lambda torn=torn: torn.resume(2), lambda: None):
            torn.path.write_bytes(data[:cut])
            act()
            CSVLogger(torn.save_dir, version=0).log_metrics({"loss": 2.0}, at(3))
            assert steps(torn) == [1, 3]
            assert [row["loss"] for row in rows(torn)] == [repr(1 / 3), "2.0"]


def test_a_header_torn_by_a_crash_is_begun_anew(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, version=0)
    logger.path.parent.mkdir(parents=True)
    logger.path.write_text("batch,st")
    logger.resume(3)
    logger.log_metrics({"x": 1.0}, at(4))
    assert steps(logger) == [4]


def test_zeros_that_a_power_cut_left_are_dropped_with_a_warning(logger: CSVLogger) -> None:
    for step in (1, 2):
        logger.log_metrics({"x": 1.0}, at(step))
    with logger.path.open("ab") as file:
        file.write(b"\0" * 40 + b"\n6,3,0,192,0.75,1.0\n")
    with pytest.warns(UserWarning, match="1 unreadable rows"):
        logger.resume(5)
    assert steps(logger) == [1, 2, 3]


def test_a_run_killed_at_any_moment_leaves_a_file_that_reads_and_resumes(tmp_path: Path) -> None:
    script = f"""
from lumen.loggers.csv import CSVLogger
logger = CSVLogger({str(tmp_path)!r})
step = 0
while True:
    step += 1
    logger.log_metrics({{"loss": 1 / 3, f"new{{step // 7 % 40}}": 1.0}},
                       dict(batch=step, step=step, epoch=0, samples=step, seconds=0.0))
    if step == 20: print("running", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
    logger = CSVLogger(tmp_path)
    logger.adopt(str(Path(tmp_path, "lumen_logs", "version_0", "checkpoints", "x")))
    logger.resume(15)
    logger.log_metrics({"loss": 0.0}, at(16))
    assert steps(logger) == list(range(1, 17))
    assert {len(row) for row in rows(logger)} == {len(rows(logger)[0])}


def test_a_file_of_another_tool_is_kept_and_widened(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, version=0)
    logger.path.parent.mkdir(parents=True)
    logger.path.write_bytes(b"\xef\xbb\xbfstep,loss\r\n1,0.5\r\n9,0.4\r\n")
    logger.resume(5)
    logger.log_metrics({"loss": 0.25}, at(6))
    assert list(rows(logger)[0]) == [*COUNTERS, "loss"]
    assert [(row["step"], row["loss"], row["samples"]) for row in rows(logger)] == [
        ("1", "0.5", ""),
        ("6", "0.25", "384"),
    ]


def test_adopting_takes_the_checkpoints_version_only_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "lumen_logs" / "version_4").mkdir(parents=True)
    for path, version in [
        (tmp_path / "lumen_logs" / "version_2" / "checkpoints" / "last", 2),
        (tmp_path / "lumen_logs" / "version_02" / "checkpoints" / "last", 5),
        (tmp_path / "other" / "version_2" / "checkpoints" / "last", 5),
        (tmp_path / "last", 5),
    ]:
        logger = CSVLogger(tmp_path)
        logger.adopt(str(path))
        assert logger.version == version
    given = CSVLogger(tmp_path, version=7)
    given.adopt(str(tmp_path / "lumen_logs" / "version_2" / "checkpoints" / "last"))
    assert given.version == 7


def test_it_goes_on_after_finalize(logger: CSVLogger) -> None:
    logger.log_metrics({"x": 1.0}, at(1))
    logger.finalize("success")
    logger.log_metrics({"test_x": 2.0}, at(1))
    assert [row["test_x"] for row in rows(logger)] == ["", "2.0"]


# -- hyper-parameters -------------------------------------------------------------------------------------------------


def test_hyperparameters_are_strict_json(logger: CSVLogger) -> None:
    np = pytest.importorskip("numpy")
    logger.log_hyperparams({"lr": 1e-3, "layers": (2, [3]), "act": len, "nested": {1: np.int64(2)}, "on": True})
    logger.log_hyperparams({"lr": float("inf"), "path": Path("a") / "b", "size": np.float32(0.5), "none": None})
    text = (Path(logger.log_dir) / "hparams.json").read_text()
    refuse = pytest.fail
    assert json.loads(text, parse_constant=refuse) == {
        "lr": "inf",
        "layers": [2, [3]],
        "act": "<built-in function len>",
        "nested": {"1": 2},
        "on": True,
        "path": "a/b",
        "size": 0.5,
        "none": None,
    }


# -- the base ---------------------------------------------------------------------------------------------------------


def test_a_logger_of_ten_lines_works_and_writes_no_files() -> None:
    class Collecting(Logger):
        def __init__(self) -> None:
            self.records: list[tuple[int | float, dict[str, float]]] = []

        def log_metrics(self, metrics: Any, counters: Any) -> None:
            self.records.append((counters["samples"], dict(metrics)))

    logger = Collecting()
    logger.adopt("somewhere")
    logger.resume(0)
    logger.log_hyperparams({"lr": 1})
    logger.log_metrics({"loss": 1.0}, at(2))
    logger.save()
    logger.finalize("failed")
    assert logger.records == [(128, {"loss": 1.0})]
    assert (logger.name, logger.version, logger.save_dir, logger.log_dir) == ("Collecting", 0, None, None)


def test_a_logger_needs_log_metrics() -> None:
    with pytest.raises(TypeError, match="log_metrics"):
        Logger()  # type: ignore[abstract]


def test_a_named_version_of_a_users_logger_is_its_folder(tmp_path: Path) -> None:
    class Mine(Logger):
        save_dir = str(tmp_path)
        version = "run-a"

        def log_metrics(self, metrics: Any, counters: Any) -> None: ...

    assert Mine().log_dir == str(tmp_path / "Mine" / "run-a")
