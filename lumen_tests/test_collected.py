"""Every file of tests is found by a run of the whole folder: pytest passes over some names of folders in silence."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


def test_pytest_enters_every_folder_that_holds_tests(request: pytest.FixtureRequest) -> None:
    passed_over = request.config.getini("norecursedirs")
    for folder in {file.parent for file in ROOT.rglob("test_*.py")}:
        for name in folder.relative_to(ROOT).parts:
            assert not any(fnmatch.fnmatch(name, pattern) for pattern in passed_over), folder
