"""Collectives of Paddle, where a run has failed: the other ranks do not come to them any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from lumen.errors import RankError
from lumen.shell.paddle_shim import paddle


@contextlib.contextmanager
def no_collectives() -> Iterator[None]:
    """A context in which all collectives of Paddle raise at once.

    Otherwise one would wait for 30 s, or take part in one that another rank still is in, with other data (measured).

    Raises:
        RankError: A collective is called.
    """
    group = paddle.distributed.communication.group.Group
    own = vars(group)["process_group"]  # all of them go through it, those of the user's own groups too
    group.process_group = property(_refuse)
    try:
        yield
    finally:
        group.process_group = own


def _refuse(_: Any) -> NoReturn:
    raise RankError("a collective", got="a call after a failure", do="Hooks of a failed run work on one rank.")
