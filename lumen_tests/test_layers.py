"""The layers point one way, and what must not need Paddle does not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lumen

ROOT = Path(lumen.__file__).parent
PROJECT = Path(__file__).parent.parent
WITHOUT_PADDLE = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "paddle":
            raise ModuleNotFoundError("No module named 'paddle'", name="paddle")

sys.meta_path.insert(0, Refuse())
import lumen
for name in {names!r}:
    module = importlib.import_module(name)
    if name in {packages!r}:
        for found in pkgutil.walk_packages(module.__path__, name + "."):
            importlib.import_module(found.name)
assert "paddle" not in sys.modules
print("fine")
"""
PACKAGES = ("lumen.core", "lumen.loop", "lumen.callbacks", "lumen.loggers")


def imported(path: Path) -> set[str]:
    """The modules that a file names in an import statement, those for type checkers included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_the_contracts_of_pyproject_hold() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    if not (PROJECT / "lumen").is_dir():
        pytest.skip("the checkout is not here: lumen is tested as installed")
    run = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


def test_all_that_needs_no_paddle_is_imported_without_it() -> None:
    names = (*PACKAGES, "lumen.errors", "lumen.testing")
    code = WITHOUT_PADDLE.format(names=names, packages=PACKAGES)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "fine\n", run.stderr


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_paddle_comes_in_through_the_shim(path: Path) -> None:
    """The shim is quiet and loads what must come first; a file may name parts of Paddle after it."""
    if path.relative_to(ROOT).as_posix() == "shell/paddle_shim.py":
        return
    names = imported(path)
    assert "paddle" not in names
    parts = {name for name in names if name.startswith("paddle.")}
    assert not parts or "lumen.shell.paddle_shim" in names
