"""Paddle, imported quietly and without a trace in the process."""

from __future__ import annotations

import logging
import os
import sys
import warnings
import zlib
from typing import Any

from lumen.errors import MissingDependencyError

# Paddle 2.6.2 exports its own zlib: Python's must be loaded before it, or the first compression kills the process.
_ZLIB = zlib.crc32


def _import() -> Any:
    """Imports paddle; what its import changes in the environment, the root logger and the warnings is set back."""
    if "paddle" in sys.modules:
        return sys.modules["paddle"]
    environ, root = dict(os.environ), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    os.environ.setdefault("GLOG_minloglevel", "2")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import paddle
    except ImportError as error:
        if error.name not in ("paddle", None):
            raise
        raise MissingDependencyError(
            "paddle",
            got="not installed",
            do='Install it: python -m pip install "lumen-paddle[cpu]", or "lumen-paddle[gpu]" for NVIDIA GPUs.',
        ) from error
    finally:
        for name in set(os.environ) - set(environ):
            del os.environ[name]
        os.environ.update(environ)
        root.handlers[:] = handlers
        root.setLevel(level)
    return paddle


paddle: Any = _import()
is_paddle2: bool = paddle.__version__.startswith("2.")


def gpu_count() -> int:
    """GPUs that Paddle can use: 0 on a CPU build, and on a GPU build without a GPU (asking for one would kill it)."""
    if not paddle.is_compiled_with_cuda():
        return 0
    return int(paddle.device.cuda.device_count())
