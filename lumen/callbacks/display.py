"""How progress is shown: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lumen.callbacks.views import View

_BAR_WIDTH = 24
_FREE_LINES = 30  # so many lines may come as fast as they like
_STREAM_ERRORS = (OSError, ValueError)  # a broken pipe, a full disk; a closed stream is a ValueError


class Display(Protocol):
    """Where progress is shown. None of its methods ever raises because of the stream.

    Attributes:
        live: Whether what is shown is overwritten by the next.
    """

    live: bool

    def show(self, slot: str, view: View) -> None:
        """Shows how far a loop is; each slot is a place on the screen."""

    def drop(self, slot: str) -> None:
        """The slot's loop is over."""

    def line(self, text: str) -> None:
        """Writes a line that stays."""

    def close(self) -> None:
        """Leaves the terminal as it was."""


class PlainDisplay:
    """Lines on whatever `sys.stdout` is at the time."""

    live = False

    def show(self, slot: str, view: View) -> None:
        """Writes a line."""
        self.line(str(view))

    def drop(self, slot: str) -> None:
        """Nothing is left on the screen."""

    def line(self, text: str) -> None:
        """Writes a line."""
        stream = sys.stdout
        if stream is None:
            return
        with contextlib.suppress(*_STREAM_ERRORS):
            try:
                stream.write(f"{text}\n")
            except UnicodeEncodeError:
                stream.write(f"{ascii(text)[1:-1]}\n")
            stream.flush()

    def close(self) -> None:
        """Nothing is held."""


class LiveDisplay:
    """Bars at the bottom of a terminal, drawn only when `show` is called: no thread.

    Args:
        console: The terminal.
    """

    live = True

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._views: dict[str, View] = {}

    def show(self, slot: str, view: View) -> None:
        """Draws the bars."""
        self._views[slot] = view
        try:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._table(), refresh=True)
        except _STREAM_ERRORS:
            self.close()

    def drop(self, slot: str) -> None:
        """Takes the slot's bar away; it is gone with the next drawing."""
        self._views.pop(slot, None)

    def line(self, text: str) -> None:
        """Writes a line above the bars."""
        from rich.text import Text

        with contextlib.suppress(*_STREAM_ERRORS):
            self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Takes the bars away and gives cursor and streams back."""
        self._views.clear()
        with contextlib.suppress(*_STREAM_ERRORS):
            self._live.stop()

    def _table(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for _ in range(3):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        for view in self._views.values():
            bar = ProgressBar(total=view.total, completed=view.done, width=_BAR_WIDTH, pulse=view.total is None)
            table.add_row(Text(view.title), bar, Text(view.count), Text(view.details))
        return table


class Screen:
    """A display, and the pace at which something is shown on it.

    Args:
        display: Where to show; None: nowhere, nothing is ever due.
        now: The clock, in seconds.
        refresh_rate: Seconds between two drawings of a live display.
        plain_every: Seconds between two lines of a plain one.

    Attributes:
        due: When something is to be shown next.
    """

    def __init__(
        self, display: Display | None, now: Callable[[], float], refresh_rate: float = 1.0, plain_every: float = 1.0
    ) -> None:
        self._display = display
        self._now = now
        self._every = refresh_rate if display is not None and display.live else plain_every
        self._lines = 0
        self._last_line = -math.inf
        self.due = math.inf

    def start(self) -> None:
        """A loop begins: a bar is due at once, a plain line after a while."""
        if self._display is not None:
            self.due = self._now() + (0.0 if self._display.live else self._every)

    def show(self, slot: str, view: View) -> None:
        """Shows how far a loop is."""
        if self._display is not None:
            self._display.show(slot, view)
            self.due = self._now() + self._every

    def drop(self, slot: str) -> None:
        """The slot's loop is over."""
        if self._display is not None:
            self._display.drop(slot)

    def may_write(self, *, always: bool = False) -> bool:
        """Whether a line that stays may be written now: the first ones always, later at most one a second."""
        if self._display is None:
            return False
        return always or self._lines < _FREE_LINES or self._now() - self._last_line >= 1.0

    def write(self, text: str) -> None:
        """Writes a line that stays."""
        if self._display is not None:
            self._lines += 1
            self._last_line = self._now()
            self._display.line(text)

    def close(self) -> None:
        """Leaves the terminal as it was; nothing is due until a loop starts."""
        self.due = math.inf
        if self._display is not None:
            self._display.close()


def open_display() -> Display:
    """A live display if `sys.stdout` is a terminal that can show one, else plain lines."""
    stream = sys.stdout
    try:
        terminal = stream is not None and stream.isatty()
    except (AttributeError, *_STREAM_ERRORS):
        terminal = False
    if terminal:
        with contextlib.suppress(ImportError):
            from rich.console import Console

            console = Console(file=stream, highlight=False)
            if console.is_terminal and not console.is_dumb_terminal:
                return LiveDisplay(console)
    return PlainDisplay()
