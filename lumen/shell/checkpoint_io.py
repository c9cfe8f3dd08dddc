"""Checkpoints as folders: written beside and renamed, verified before anything in them is believed.

A checkpoint holds ``manifest.json`` (format, versions, counters, and size and SHA-256 of every other file),
``state.json`` and one safetensors file for each section with arrays. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import safetensors
import safetensors.numpy

from lumen import __version__
from lumen.errors import CheckpointError, DataError
from lumen.shell.paddle_shim import paddle
from lumen.shell.trees import join, split

FORMAT, VERSION = "lumen checkpoint", 1
MANIFEST, STATE = "manifest.json", "state.json"
_LARGEST_JSON = 256 << 20  # bytes; a run's state is some kB, so a larger file is not one of ours
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_log = logging.getLogger("lumen")


@attrs.frozen
class Checkpoint:
    """A checkpoint that was read and verified.

    Args:
        path: Its folder.
        manifest: Versions and counters.
        sections: What was saved: trees of plain data and arrays.
    """

    path: Path
    manifest: Mapping[str, Any]
    sections: Mapping[str, Any]


# -- writing -------------------------------------------------------------------------------------------------------


def write(
    path: str | os.PathLike[str], sections: Mapping[str, Any], *, manifest: Mapping[str, Any] | None = None
) -> Path:
    """Writes a checkpoint; whenever the process or the machine stops, the last whole one is still there.

    All files are written into a folder beside the target and fsynced, the manifest last; then that folder takes the
    target's name. One that had the name before is moved aside first and deleted afterwards, and counts as whole, as
    does the new one under its first name, for `newest`.

    Args:
        path: The checkpoint's folder; replaced if it is there.
        sections: Trees of plain data, arrays and `BFloat16`, by name.
        manifest: Plain data to be kept in the manifest.

    Raises:
        CheckpointError: Something in a section cannot be kept, or the folder cannot be written.
    """
    target = Path(path)
    state, arrays = split(sections)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mark = f"{os.getpid()}-{secrets.token_hex(4)}"
        beside = target.parent / f".{target.name}.new-{mark}"
        beside.mkdir()
        try:
            _fill(beside, state, arrays, dict(manifest or {}))
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        _swap(beside, target, mark)
    except OSError as error:
        raise CheckpointError(
            str(target), got=str(error), do="Check that the folder can be written and the disk has room."
        ) from error
    return target


def _fill(folder: Path, state: Any, arrays: Mapping[str, Mapping[str, Any]], manifest: dict[str, Any]) -> None:
    files: dict[str, dict[str, Any]] = {}
    for section, tensors in arrays.items():
        files[f"{section}.safetensors"] = _write_file(
            folder / f"{section}.safetensors", safetensors.numpy.save(dict(tensors))
        )
    files[STATE] = _write_file(folder / STATE, json.dumps(state, allow_nan=False).encode())
    whole = {
        **manifest,
        "format": FORMAT,
        "version": VERSION,
        "lumen": __version__,
        "paddle": paddle.__version__,
        "created": time.time(),
        "files": files,
    }
    whole["digest"] = _digest_of(whole)
    _write_file(folder / MANIFEST, json.dumps(whole, indent=1, allow_nan=False).encode())
    _sync_folder(folder)


def _write_file(path: Path, data: bytes) -> dict[str, Any]:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _swap(beside: Path, target: Path, mark: str) -> None:
    """Gives the new folder the target's name, and clears what earlier writes of that name left behind."""
    if target.exists():
        target.rename(target.parent / f".{target.name}.old-{mark}")
    beside.rename(target)
    _sync_folder(target.parent)
    for leftover in target.parent.glob(f".{target.name}.*-*"):
        if leftover.name.startswith((f".{target.name}.old-", f".{target.name}.new-")):
            shutil.rmtree(leftover, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems refuse to fsync a folder
            os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: str | os.PathLike[str]) -> None:
    """Deletes a checkpoint: it stops to count as one at once, then its files go."""
    target = Path(path)
    with contextlib.suppress(FileNotFoundError):
        (target / MANIFEST).unlink()
    shutil.rmtree(target, ignore_errors=True)


# -- reading -------------------------------------------------------------------------------------------------------


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a checkpoint, itself verified; its files are only looked at for their sizes.

    Args:
        path: The checkpoint's folder.

    Raises:
        CheckpointError: There is none, it is damaged or not whole, or of another version.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(str(folder), got="no such folder", do="Give the folder of a checkpoint.")
    manifest = _json(folder, MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _damaged(folder, MANIFEST, "it is no manifest of a lumen checkpoint")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            str(folder),
            got=f"format version {manifest.get('version')!r}",
            allowed=f"version {VERSION}",
            do="Read it with the lumen that wrote it.",
        )
    if manifest.get("digest") != _digest_of(manifest):
        raise _damaged(folder, MANIFEST, "its digest is another")
    _check_files(folder, manifest.get("files"))
    return manifest


def _check_files(folder: Path, files: Any) -> None:
    if not isinstance(files, dict) or STATE not in files:
        raise _damaged(folder, MANIFEST, "it lists no files")
    for name, facts in files.items():
        if _NAME.fullmatch(name) is None or name == MANIFEST:
            raise _damaged(folder, MANIFEST, f"it names the file {name!r}")
        if not isinstance(facts, dict) or set(facts) != {"size", "sha256"} or not isinstance(facts["size"], int):
            raise _damaged(folder, MANIFEST, f"it says nothing of {name!r}")
        file = folder / name
        if file.is_symlink() or not file.is_file():
            raise _damaged(folder, name, "it is missing")
        if file.stat().st_size != facts["size"]:
            raise _damaged(folder, name, f"it has {file.stat().st_size} bytes instead of {facts['size']}")
    extra = sorted({entry.name for entry in folder.iterdir()} - set(files) - {MANIFEST})
    if extra:
        raise _damaged(folder, extra[0], "it does not belong there")


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint; every file is verified against the manifest before it is parsed.

    Args:
        path: The checkpoint's folder.

    Raises:
        CheckpointError: As `inspect`, or a file's content is damaged; the error names the file.
    """
    folder = Path(path)
    manifest = inspect(folder)
    contents = {}
    for name, facts in manifest["files"].items():
        data = (folder / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != facts["sha256"]:
            raise _damaged(folder, name, "its digest is another")
        contents[name] = data
    state = _parse(folder, STATE, contents.pop(STATE))
    arrays = {}
    for name, data in contents.items():
        try:
            arrays[name.removesuffix(".safetensors")] = safetensors.numpy.load(data)
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
            raise _damaged(folder, name, str(error)) from error
    try:
        sections = join(state, arrays)
    except DataError as error:
        raise _damaged(folder, STATE, str(error)) from error
    return Checkpoint(folder, manifest, sections)


def _json(folder: Path, name: str) -> Any:
    file = folder / name
    if file.is_symlink() or not file.is_file():
        raise _damaged(folder, name, "it is missing")
    if file.stat().st_size > _LARGEST_JSON:
        raise _damaged(folder, name, f"it has {file.stat().st_size} bytes")
    return _parse(folder, name, file.read_bytes())


def _parse(folder: Path, name: str, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, name, f"it is no JSON ({error})") from error


def _digest_of(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path, name: str, what: str) -> CheckpointError:
    return CheckpointError(
        str(folder), got=f"{name}: {what}", allowed="a whole checkpoint", do="It is damaged: use an earlier one."
    )


# -- finding -------------------------------------------------------------------------------------------------------


def newest(folders: Iterable[str | os.PathLike[str]]) -> Checkpoint | None:
    """The newest whole checkpoint in some folders, by what the manifests say; None if there is none at all.

    Names decide nothing: one that was written but not yet renamed counts. A damaged one is named in a warning and
    passed over.

    Args:
        folders: Folders that hold checkpoints.

    Raises:
        CheckpointError: There are some, and all are damaged.
    """
    found: list[tuple[float, int, bool, Path]] = []
    errors: list[CheckpointError] = []
    for folder in map(Path, folders):
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not entry.is_dir() or not (entry / MANIFEST).is_file():
                continue
            try:
                manifest = inspect(entry)
                order = (float(manifest["created"]), int(manifest.get("step", 0)), not entry.name.startswith("."))
                found.append((*order, entry))
            except CheckpointError as error:
                errors.append(error)
    whole: Checkpoint | None = None
    for *_, entry in sorted(found, reverse=True):
        try:
            whole = read(entry)
            break
        except CheckpointError as error:
            errors.append(error)
    if whole is None and errors:
        raise errors[0]
    for damaged in errors:
        _log.warning("Passed over: %s", damaged)
    return whole
