"""Importing lumen changes nothing in the process, and is light."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

import lumen

PROBE = """
import logging, os, random, signal, sys, threading, warnings
import numpy as np

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "paddle":
            raise ModuleNotFoundError("No module named 'paddle'", name="paddle")

def look():
    return {{
        "environment": dict(os.environ),
        "signals": {{number: signal.getsignal(number) for number in signal.Signals}},
        "warnings": list(warnings.filters),
        "logging": (logging.root.level, list(logging.root.handlers), logging.lastResort),
        "python": random.getstate(),
        "numpy": [str(part) for part in np.random.get_state()],
        "threads": threading.enumerate(),
        "hooks": (sys.excepthook, sys.displayhook, threading.excepthook, list(sys.meta_path)),
    }}

if {refuse}:
    sys.meta_path.insert(0, Refuse())
before = look()
{statement}
after = look()
changed = [name for name in before if before[name] != after[name]]
assert not changed, changed
assert "paddle" not in sys.modules
"""


def run(statement: str, *, refuse: bool) -> subprocess.CompletedProcess[str]:
    code = PROBE.format(statement=statement, refuse=refuse)
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("refuse", [False, True], ids=["paddle-there", "paddle-unimportable"])
@pytest.mark.parametrize(
    "statement",
    [
        "import lumen",
        "import lumen.core",
        "import lumen.loop",
        "import lumen.callbacks",
        "import lumen; lumen.Callback",
    ],
)
def test_an_import_changes_nothing(statement: str, refuse: bool) -> None:
    done = run(statement, refuse=refuse)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")


def test_the_probe_sees_a_change() -> None:
    done = run("os.environ['X'] = '1'; random.random()", refuse=True)
    assert done.returncode == 1
    assert "['environment', 'python']" in done.stderr


def test_without_paddle_the_trainer_says_which_command_to_type() -> None:
    done = run("import lumen; lumen.Trainer", refuse=True)
    assert done.returncode == 1
    assert "lumen.errors.MissingDependencyError" in done.stderr
    assert "pip install" in done.stderr


def test_a_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'Trainer'"):
        _ = lumen.Trainr


def test_all_public_names_can_be_loaded() -> None:
    names = [name for name in dir(lumen) if not name.startswith("_")]
    assert {"Callback", "CSVLogger", "EarlyStopping", "ModelCheckpoint", "Module", "Trainer", "seed_everything"} <= set(
        names
    )
    if importlib.util.find_spec("paddle") is None:
        pytest.skip("Paddle is not installed")
    for name in names:
        assert getattr(lumen, name).__name__.removeprefix("lumen.") == name
