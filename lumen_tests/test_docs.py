"""What the documentation says is so: examples run, public names are described, described arguments exist."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lumen
from lumen.core.loading import DECISIONS

ROOT = Path(lumen.__file__).parent
PROJECT = Path(__file__).parent.parent
README = (PROJECT / "README.md").read_text()
MODULES = sorted(found.name for found in pkgutil.walk_packages(lumen.__path__, "lumen."))
PUBLIC = sorted(name for name in dir(lumen) if not name.startswith("_"))


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_readme_example_is_short_and_runs_as_it_stands(tmp_path: Path) -> None:
    example = blocks("python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 25
    (tmp_path / "example.py").write_text(example)
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    scores = [float(text) for text in re.findall(r"val_acc\D+?([01]\.\d+)", run.stdout + run.stderr)]
    assert scores[-1] > 0.9, run.stdout + run.stderr


@pytest.mark.parametrize("page", sorted((PROJECT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(blocks("python", page.read_text())))
    run = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_the_table_of_loaders_is_the_one_that_decides() -> None:
    page = PROJECT / "docs" / "data.md"
    if not page.exists():
        pytest.skip("the checkout is not here: lumen is tested as installed")
    rows = [
        f"| {case.value} | {one.__name__.lower()} | {several.__name__.lower()} |"
        for case, (one, several) in DECISIONS.items()
    ]
    assert "\n".join(rows) in page.read_text()


def test_the_readme_has_the_two_commands_and_ci_runs_the_second() -> None:
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert "python -m pip install nox && python -m nox -s quickstart" in commands
    assert "python -m pip install nox && python -m nox -s tests" in commands


def test_the_readme_links_to_what_is_there() -> None:
    if not (PROJECT / "noxfile.py").exists():
        pytest.skip("the checkout is not here: lumen is tested as installed")
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert not [link for link in links if not (PROJECT / link).exists()]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    done = doctest.testmod(module, optionflags=doctest.ELLIPSIS, verbose=False, report=True)
    assert done.failed == 0


def members(name: str) -> Iterator[tuple[str, object]]:
    """A public object, and its public methods and properties that lumen itself defines."""
    thing = getattr(lumen, name)
    yield name, thing
    if not inspect.isclass(thing):
        return
    for owner in thing.__mro__:
        if owner.__module__.startswith("lumen"):
            for attribute, value in vars(owner).items():
                if not attribute.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    yield f"{name}.{attribute}", getattr(thing, attribute)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_described(name: str) -> None:
    bare = [path for path, thing in members(name) if not (inspect.getdoc(thing) or "").strip()]
    assert not bare


@pytest.mark.parametrize("name", ["Trainer", "ModelCheckpoint", "EarlyStopping", "ProgressBar", "CSVLogger"])
def test_what_users_meet_first_says_which_arguments_it_takes(name: str) -> None:
    thing = getattr(lumen, name)
    arguments = [each for each in inspect.signature(thing).parameters.values() if each.kind is not each.VAR_KEYWORD]
    described = inspect.getdoc(thing) or ""
    assert not [each.name for each in arguments if not re.search(rf"^ +{each.name}\b.*:", described, re.MULTILINE)]


def described_arguments(node: ast.AST) -> list[str]:
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", ast.get_docstring(node) or "", re.MULTILINE)
    return re.findall(r"^ {4}\*{0,2}(\w+):", section[1], re.MULTILINE) if section else []


def taken_arguments(node: ast.AST, classes: dict[str, ast.ClassDef]) -> set[str]:
    """A function's parameters; a class's fields, those of its bases in the same file, and those of its `__init__`."""
    if isinstance(node, ast.ClassDef):
        fields = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
        return fields.union(*(taken_arguments(each, classes) for each in [*made, *bases]))
    every = node.args
    some = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    return {each.arg for each in some if each is not None}


@pytest.mark.parametrize("name", MODULES)
def test_described_arguments_exist(name: str) -> None:
    source = Path(importlib.util.find_spec(name).origin).read_text()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    wrong = [
        f"{node.name}: {argument}"
        for node in nodes
        for argument in described_arguments(node)
        if argument not in taken_arguments(node, classes)
    ]
    assert not wrong
