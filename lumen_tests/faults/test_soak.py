"""Fifty jobs one after the other leave no process (and so no port), no file and no shared memory."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lumen_tests.ranks.test_launcher import PROGRAM, environ

pytestmark = [pytest.mark.dist, pytest.mark.slow, pytest.mark.timeout(900)]
CYCLES = 50


def marked(mark: str) -> list[str]:
    """The processes that inherited a variable; a port is open only as long as one of them is there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_fifty_jobs_leave_nothing(tmp_path: Path) -> None:
    program, temporary, mark = tmp_path / "program.py", tmp_path / "tmp", uuid.uuid4().hex
    program.write_text(PROGRAM)
    temporary.mkdir()
    pids = set()
    for cycle in range(CYCLES):
        what, code = (("report", 0), ("raise", 1), ("exit 7", 7))[cycle % 3]
        done = subprocess.run(
            [sys.executable, str(program), what, str(tmp_path)],
            env={**environ(), "TMPDIR": str(temporary), "SOAK": mark},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == code, done.stderr
        assert not marked(mark)
        pids |= {path.read_text() for path in tmp_path.glob("pid-*")}
    assert len(pids) == 2 * CYCLES
    assert not [path for path in Path("/dev/shm").iterdir() if pids & set(path.name.split("_"))]
    assert not list(temporary.iterdir())
