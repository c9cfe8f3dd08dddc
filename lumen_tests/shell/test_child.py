"""What becomes of the lines that ranks write: each way of showing them, with real processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from lumen.errors import ConfigError
from lumen.shell.ranks.child import Child

WRITER = [
    sys.executable,
    "-c",
    "import sys; print('out'); sys.stdout.flush(); print('err\\nhalf', end='', file=sys.stderr)",
]


def run(rank: int, output: str, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What one process that writes to both of its streams leaves on this one's."""
    child = Child(rank, WRITER, os.environ, output)
    while child.poll() is None:
        time.sleep(0.01)
    child.last_words()
    child.close()
    assert child.code == 0
    shown = capfd.readouterr()
    return shown.out, shown.err


@pytest.mark.parametrize(
    ("rank", "output", "out", "err"),
    [
        (0, "all", "out\n", "err\nhalf"),
        (0, "none", "out\n", "err\nhalf"),
        (1, "all", "", "[rank 1] err\n[rank 1] half\n[rank 1] out\n"),
        (1, "errors", "", "[rank 1] err\n[rank 1] half\n"),
        (1, "none", "", ""),
    ],
)
def test_every_line_of_another_rank_carries_its_number(
    rank: int, output: str, out: str, err: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shown_out, shown_err = run(rank, output, capfd)
    assert shown_out == out
    assert sorted(shown_err.splitlines()) == sorted(err.splitlines())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_folder_gets_one_file_a_rank(rank: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "logs"
    shown = run(rank, str(folder), capfd)
    assert shown == (("out\n", "err\nhalf") if rank == 0 else ("", ""))
    assert [file.name for file in folder.iterdir()] == [f"rank-{rank}.log"]
    assert sorted((folder / f"rank-{rank}.log").read_text().split()) == ["err", "half", "out"]


def test_a_folder_that_cannot_be_written_to_is_told_before_a_process_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"rank_output: got '.*file'; allowed: a folder that can be written to"):
        Child(0, ["/there/is/no/such/program"], {}, str(tmp_path / "file"))
