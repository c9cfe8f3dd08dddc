"""Uncaught exceptions of a rank: shown once, by whoever knows how all ranks stood."""

from __future__ import annotations

import sys
from types import TracebackType

from lumen.core.faults import Position
from lumen.shell.ranks.member import Member
from lumen.shell.ranks.supervision import is_quiet


def watch_uncaught(member: Member) -> None:
    """Lets an exception that ends this process reach the others, and the verdict on all ranks stand last.

    A hook that the program has set itself is called too.

    Args:
        member: This rank.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if not member.has_told(error):
            member.fail(error, Position())
        if not is_quiet() or before is not sys.__excepthook__:
            before(kind, error, traceback)
        if not member.supervised and member.verdict:
            sys.stderr.write(member.verdict)
            sys.stderr.flush()

    sys.excepthook = hook
