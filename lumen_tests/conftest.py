"""Every test leaves the process as it found it: environment, signal handlers, threads, child processes."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("lumen", deadline=None)  # nothing is timed in tests
settings.load_profile("lumen")

OWN = ("PYTEST_CURRENT_TEST",)  # pytest sets it around each phase of a test
GRACE = 5.0  # seconds that a thread or a child which was told to end may take


@functools.cache
def gpu_answers() -> bool:
    found = shutil.which("nvidia-smi")
    return found is not None and subprocess.run([found], capture_output=True, check=False).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(item.get_closest_marker("gpu") for item in items) and not gpu_answers():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU: nvidia-smi does not answer here"))


def handlers() -> dict[str, object]:
    """All but the alarm's, which pytest-timeout sets and takes back in its own time, and the one that Paddle sets once
    and for all when it first starts workers."""
    others = [number for number in signal.Signals if number not in (signal.SIGALRM, signal.SIGCHLD)]
    return {number.name: signal.getsignal(number) for number in others}


def threads() -> set[threading.Thread]:
    """Threads that would keep the process from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


def children() -> set[str]:
    """Process ids of this process's children, those that ended but were not waited for included."""
    found: set[str] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found.update(task.read_text().split())
    return found


def left_of(read: Callable[[], set], before: set) -> set:
    """What `read` gives beyond `before`, once those that are just ending have had their time."""
    deadline = time.monotonic() + GRACE
    while (extra := read() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    return extra


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [f"{name}: {before.get(name)!r} -> {after.get(name)!r}" for name in names]


def tracker() -> set[str]:
    """The resource tracker that multiprocessing starts once and keeps for the life of the process."""
    from multiprocessing import resource_tracker

    pid = getattr(resource_tracker._resource_tracker, "_pid", None)
    return {str(pid)} if pid is not None else set()


@pytest.fixture(autouse=True)
def leaves_no_trace() -> Iterator[None]:
    """Fails a test that leaves behind an environment variable, a signal handler, a thread or a child process."""
    environment, signals, alive, running = dict(os.environ), handlers(), threads(), children()
    yield
    left = [
        f"environment variable {text}"
        for text in differences(environment, dict(os.environ))
        if not text.startswith(OWN)
    ]
    left += [f"signal handler {text}" for text in differences(signals, handlers())]
    left += [f"thread {thread.name}" for thread in left_of(threads, alive)]
    multiprocessing.active_children()  # collects those that have ended
    left += [f"child process {pid}" for pid in left_of(children, running | tracker())]
    if left:
        pytest.fail("the test left behind: " + "; ".join(left), pytrace=False)
