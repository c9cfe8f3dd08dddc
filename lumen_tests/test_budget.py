"""Files, functions, classes and constructors stay small: when one grows, a concept is missing."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import lumen

ROOT = Path(lumen.__file__).parent
FILE, FUNCTION, CLASS = 300, 40, 200
INTERFACES = {"Callback", "ModuleHooks", "Trainer"}  # lists of names: their length is their use, not their logic
FILES = sorted(ROOT.rglob("*.py"))


def lines_of_code(text: str) -> set[int]:
    """The lines that hold a token of code: no comment, no blank line."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            held.update(range(token.start[0], token.end[0] + 1))
    return held


def docstring_lines(node: ast.AST) -> set[int]:
    """The lines of this node's docstring and of those of all within it."""
    held: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(inner):
            held.update(range(inner.body[0].lineno, inner.body[0].end_lineno + 1))
    return held


def signature_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return set(range(node.lineno, node.body[0].lineno))


def too_long(text: str) -> Iterator[str]:
    code, tree = lines_of_code(text), ast.parse(text)
    if len(text.splitlines()) > FILE:
        yield f"the file has {len(text.splitlines())} lines, over {FILE}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(
                code & set(range(node.lineno, node.end_lineno + 1)) - docstring_lines(node) - signature_lines(node)
            )
            if size > FUNCTION:
                yield f"{node.name} (line {node.lineno}) has {size} lines of code, over {FUNCTION}"
        elif isinstance(node, ast.ClassDef) and node.name not in INTERFACES:
            size = len(code & set(range(node.lineno, node.end_lineno + 1)) - docstring_lines(node))
            if size > CLASS:
                yield f"class {node.name} (line {node.lineno}) has {size} lines of code, over {CLASS}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    assert not list(too_long(path.read_text()))


def test_the_measure_sees_what_is_too_long() -> None:
    body = "    x = 1\n"
    doc = '    """' + "word\n" * 60 + '    """\n'
    assert not list(too_long("def f():\n" + doc + body * FUNCTION))
    assert list(too_long("def f():\n" + body * (FUNCTION + 1))) == ["f (line 1) has 41 lines of code, over 40"]
    assert next(too_long("class C:\n" + body * (CLASS + 1))).startswith("class C (line 1) has 202 lines")
    assert next(too_long("\n" * (FILE + 1))).startswith("the file has 301 lines")
