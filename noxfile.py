"""The project's tasks: `python -m nox -l` lists them, `python -m nox -s NAME` runs one in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "types", "core", "docs", "recipes", "wheel", "tests_gpu_build", "tests"]
nox.options.reuse_existing_virtualenvs = True

PROJECT = nox.project.load_toml("pyproject.toml")
PADDLE = "paddlepaddle==3.3.*"
GPU_BUILD = "paddlepaddle-gpu==2.6.2"
FAST = ("-n", "2", "--dist", "worksteal", "-m", "not slow and not gpu")


def find_python(*versions: str) -> str | None:
    """The first of these interpreters that starts; a name on PATH may be a shim for one that is not there."""
    for version in versions:
        path = shutil.which(f"python{version}")
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return version
    return None


GPU_BUILD_PYTHON = find_python("3.11", "3.12", "3.10")


def group(name: str) -> list[str]:
    """The packages of one of pyproject.toml's dependency groups."""
    return nox.project.dependency_groups(PROJECT, name)


def gpu_answers() -> bool:
    """Whether this machine has a GPU and a driver that works."""
    found = shutil.which("nvidia-smi")
    return found is not None and subprocess.run([found], capture_output=True, check=False).returncode == 0


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Pytest, with what stands after `--` on the command line in place of the session's own choice."""
    session.run("python", "-m", "pytest", *(session.posargs or arguments))


@nox.session
def quickstart(session: nox.Session) -> None:
    """Installs lumen with the Paddle that fits this machine and trains the digits recipe."""
    extra = "gpu" if gpu_answers() else "cpu"
    session.install(f".[{extra},recipes]")
    session.run("python", "recipes/digits.py", *session.posargs)


@nox.session
def core(session: nox.Session) -> None:
    """The core's and the loops' tests, with no Paddle installed."""
    session.install(*group("core"), "attrs", "numpy", "toolz")
    session.install("--no-deps", "-e", ".")
    session.run("python", "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('paddle') is not None)")
    run_tests(session, "lumen_tests/core", "lumen_tests/loop", "-n", "2")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests but the slow ones, on Paddle 3.3."""
    session.install("-e", ".[cpu]", PADDLE, *group("test"))
    run_tests(session, *FAST)


@nox.session
def tests_full(session: nox.Session) -> None:
    """All tests, the slow ones included, on Paddle 3.3."""
    session.install("-e", ".[cpu]", PADDLE, *group("test"))
    run_tests(session, "-n", "2", "--dist", "worksteal")


@nox.session(python=GPU_BUILD_PYTHON or False)
def tests_gpu_build(session: nox.Session) -> None:
    """All tests but the slow ones, on the GPU build 2.6.2, which runs on a CPU too; it needs Python 3.10 to 3.12."""
    if GPU_BUILD_PYTHON is None:
        session.skip("paddlepaddle-gpu 2.6.2 has wheels for Python 3.10 to 3.12 only, and none of them was found")
    session.install("-e", ".[gpu]", GPU_BUILD, *group("test"))
    run_tests(session, *FAST)


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict; Paddle is Any to it, so none is installed."""
    session.install(*group("types"), "attrs", "rich")
    session.run("mypy", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Format, lint and the direction of imports."""
    session.install(*group("lint"))
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports", "--no-cache")


@nox.session
def docs(session: nox.Session) -> None:
    """Every example: the docstrings of lumen, the README and docs/ as programs."""
    session.install("-e", ".[cpu]", PADDLE, *group("test"))
    session.run("python", "-m", "pytest", "--doctest-modules", "lumen", "lumen_tests/test_docs.py", *session.posargs)


@nox.session
def recipes(session: nox.Session) -> None:
    """Every recipe, small, as a user would start it."""
    session.install("-e", ".[cpu,recipes]", PADDLE)
    for recipe in sorted(Path("recipes").glob("*.py")):
        session.run("python", str(recipe), "--tiny", "--root", session.create_tmp(), *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Builds the distribution and tests what it installs, far from the checkout."""
    session.install(*group("build"))
    folder = Path(session.create_tmp())
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(folder / "dist"), ".", silent=True)
    (built,) = (folder / "dist").glob("*.whl")
    session.install("--force-reinstall", "--no-deps", str(built))
    session.install(f"{built}[cpu]", PADDLE, *group("test"))
    elsewhere = folder / "elsewhere"
    shutil.copytree("lumen_tests", elsewhere / "lumen_tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(name, elsewhere)
    session.chdir(elsewhere)
    session.run("python", "-c", "import lumen, sys; sys.exit('site-packages' not in lumen.__file__)")
    run_tests(
        session, *FAST, "lumen_tests/core", "lumen_tests/loop", "lumen_tests/test_import.py", "lumen_tests/test_docs.py"
    )


@nox.session
def benchmarks(session: nox.Session) -> None:
    """What a step costs beside a hand-written loop, and a batch beside Paddle's own loader; prints the ratios."""
    session.install("-e", ".[cpu]", PADDLE)
    session.run("python", "-m", "lumen_tests.benchmarks.step", *session.posargs)
    session.run("python", "-m", "lumen_tests.benchmarks.data")
