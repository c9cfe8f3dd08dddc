"""Checkpoint folders: whole or refused, whatever happens."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumen.errors import CheckpointError
from lumen.shell import checkpoint_io
from lumen.shell.checkpoint_io import inspect, newest, read, remove, write
from lumen.shell.tensors import BFloat16

SECTIONS: dict[str, Any] = {
    "model": {
        "net.0.weight": np.arange(6, dtype="float32").reshape(2, 3),
        "half": BFloat16(np.array([1, 2], "uint16")),
    },
    "state": {"numbers": [1, 2.5, math.inf, -math.inf, None, True, "text"], "deep": {"zero": np.zeros((), "int64")}},
    "rng": [{"keys": np.arange(4, dtype="uint32")}, {"empty": np.zeros((0, 3))}],
    "seed": 2**62,
}


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(equal(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, BFloat16):
        return isinstance(two, BFloat16) and equal(one.bits, two.bits)
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and bool((one == two).all())
    return type(one) is type(two) and one == two


def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "b", SECTIONS, manifest={"step": 7})
    checkpoint = read(path)
    assert equal(SECTIONS, dict(checkpoint.sections))
    assert checkpoint.manifest["step"] == 7
    assert math.isnan(read(write(tmp_path / "nan", {"x": math.nan})).sections["x"])
    assert not [entry.name for entry in (tmp_path / "a").iterdir() if entry.name.startswith(".")]


def test_nothing_of_it_is_pickle(tmp_path: Path) -> None:
    path = write(tmp_path / "c", SECTIONS)
    assert {entry.suffix for entry in path.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, r"section\.a: got a object|a object"),
        ({1: 2}, "the key 1"),
        ({"$array": 2}, r"the key '\$array'"),
        ({"a": np.array(["x"])}, "an array of type"),
        ({"a": {1, 2}}, "a set"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_written(tmp_path: Path, tree: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        write(tmp_path / "c", {"section": tree})
    assert list(tmp_path.iterdir()) == []


def test_every_flipped_bit_truncation_and_missing_file_is_found_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "c", SECTIONS, manifest={"step": 1})
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        for index in [*range(0, len(data), 13), len(data) - 1]:
            file.write_bytes(data[:index] + bytes([data[index] ^ 8]) + data[index + 1 :])
            with pytest.raises(CheckpointError, match=str(path)):
                read(path)
        for length in (0, 1, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:length])
            with pytest.raises(CheckpointError, match=file.name):
                read(path)
        file.unlink()
        with pytest.raises(CheckpointError, match=f"{file.name}.*missing"):
            read(path)
        file.write_bytes(data)
    (path / "more.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"more\.txt.*does not belong"):
        read(path)
    (path / "more.txt").unlink()
    assert read(path).manifest["step"] == 1


def forged(path: Path, change: Any) -> None:
    """Changes a manifest and gives it a right digest."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    manifest["digest"] = checkpoint_io._digest_of(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "version 2.*allowed: version 1"),
        (lambda m: m.update(format="other"), "no manifest of a lumen checkpoint"),
        (lambda m: m["files"].update({"../x": {"size": 1, "sha256": ""}}), r"names the file '\.\./x'"),
        (lambda m: m["files"].update({"/etc/passwd": {"size": 1, "sha256": ""}}), "names the file '/etc/passwd'"),
        (lambda m: m["files"].pop("state.json"), "lists no files"),
        (lambda m: m.update(files=3), "lists no files"),
        (lambda m: m["files"].update({"state.json": {"size": "1"}}), "says nothing of 'state.json'"),
    ],
)
def test_a_manifest_that_lies_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = write(tmp_path / "c", SECTIONS)
    forged(path, change)
    with pytest.raises(CheckpointError, match=message):
        read(path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "c", SECTIONS)
    shutil.move(path / "state.json", tmp_path / "state.json")
    (path / "state.json").symlink_to(tmp_path / "state.json")
    with pytest.raises(CheckpointError, match="missing"):
        read(path)


class Crash(BaseException):
    """The machine stops here."""


@pytest.mark.parametrize("existing", [False, True])
def test_a_stop_at_any_file_operation_of_a_write_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    operations = [(os, "fsync"), (Path, "rename"), (Path, "mkdir"), (checkpoint_io, "_write_file"), (shutil, "rmtree")]
    stopped = 0
    for stop_at in range(40):
        folder = tmp_path / f"run-{stop_at}"
        if existing:
            write(folder / "last", {"n": 1}, manifest={"step": 1})
        with monkeypatch.context() as patch:
            calls = 0
            for owner, name in operations:
                real = getattr(owner, name)

                def counted(*args: Any, real: Any = real, stop_at: int = stop_at, **options: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls > stop_at:
                        raise Crash
                    return real(*args, **options)

                patch.setattr(owner, name, counted)
            try:
                write(folder / "last", {"n": 2}, manifest={"step": 2})
            except Crash:
                stopped += 1
        found = newest([folder])
        if existing:
            assert found is not None
            assert found.sections["n"] in (1, 2)
        after = write(folder / "last", {"n": 3}, manifest={"step": 3})
        assert read(after).sections["n"] == 3
        assert newest([folder]) is not None
        assert [entry.name for entry in folder.iterdir()] == ["last"], "what a stopped write left is cleared"
    assert stopped > 8


def test_the_newest_whole_one_is_found_whatever_it_is_called(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert newest([tmp_path, tmp_path / "missing"]) is None
    write(tmp_path / "z-first", {"n": 1}, manifest={"step": 5})
    write(tmp_path / "sub" / "a-second", {"n": 2}, manifest={"step": 3})
    damaged = write(tmp_path / "third", {"n": 3}, manifest={"step": 9})
    (damaged / "state.json").write_bytes(b"{" + (damaged / "state.json").read_bytes()[1:-1] + b" ")
    (tmp_path / "no checkpoint").mkdir()
    logger = logging.getLogger("lumen")
    with caplog.at_level(logging.WARNING, logger=logger.name):
        found = newest([tmp_path, tmp_path / "sub"])
    assert found is not None
    assert found.sections["n"] == 2
    assert "third" in caplog.text


def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="can be written"):
        write(tmp_path / "file" / "c", {"n": 1})


def test_a_removed_checkpoint_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path / "c", {"n": 1})
    remove(path)
    remove(path)
    assert not path.exists()
    with pytest.raises(CheckpointError, match="no such folder"):
        inspect(path)
