"""Member: a rank's connection to the coordinator: it meets the others, says where it stands, and learns of failures."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import attrs

from lumen.core.faults import Failure, Position, from_message, to_message
from lumen.core.requests import check_kinds
from lumen.errors import RankError
from lumen.shell.ranks.aborts import CaughtAborts
from lumen.shell.ranks.blame import failure_of, innermost_hook, rank_error
from lumen.shell.ranks.roll import MEET, WATCH
from lumen.shell.ranks.wire import Line

# seconds: between two words on where this rank stands; that it gets to notice by itself that another one failed; after
# which its main thread is taken to be in a collective, which nothing interrupts; that its hooks then get
_BEAT, _PATIENCE, _BLOCKED, _GRACE = 0.25, 0.2, 1.5, 4.0
_TOLD = 2.5  # seconds until a rank that aborts has learnt of the failure that made it, if there is one
_SETTLE = 5.0  # seconds that a rank which failed waits for the hooks of the others
_STOPPED = 5.0  # seconds; longer pauses of what has no pause
_LOST = "the coordinator is gone: rank 0, or the program that watches over the ranks, has ended or does not answer"


class Member:
    """This rank, as the others know it.

    Args:
        address: Where the coordinator listens.
        token: What it wants to be shown.
        rank: This rank.
        supervised: Whether the program that started the ranks reports their failures, so that this rank need not.

    Attributes:
        over: The failure for which this rank must give up; None: there is none.
        verdict: How the run of all ranks ended, once it did.
    """

    def __init__(self, address: tuple[str, int], token: str, rank: int, *, supervised: bool) -> None:
        hello = {"do": "hello", "rank": rank, "token": token}
        self.rank = rank
        self.over: Failure | None = None
        self.supervised = supervised
        self.verdict = ""
        self._meet = Line(address, {**hello, "channel": MEET})
        self._watch = Line(address, {**hello, "channel": WATCH})
        self._session = 0
        self._inside = False
        self._claim = threading.Lock()
        self._failing: int | None = None  # the thread that found this rank's failure
        self._told: BaseException | None = None
        self._talking = False
        self._alone = False  # nobody answers any more
        self._main = threading.current_thread()
        self._before: Any = None
        self._aborts = CaughtAborts(self._before_abort)
        self._beats: Callable[[], Any] = lambda: 0
        self._stand: Callable[[], Position] = Position
        self._rescue: Callable[[BaseException], None] = lambda _: None
        self._moved = self._heard = time.monotonic()
        self._hang_timeout: float | None = None
        os.register_at_fork(after_in_child=self._hang_up)  # a data worker must not keep the line of a dead rank open
        threading.Thread(target=self._watch_over, name="lumen watch", daemon=True).start()

    # -- what the main thread does ----------------------------------------------------------------------------------

    def meet(self, kind: str, body: bytes) -> list[bytes]:
        """The bytes of every rank, in their order; waits for all of them, however long that takes.

        Args:
            kind: What for; the same on every rank.
            body: This rank's own.

        Raises:
            RankError: Another rank failed, or has ended.
            WorldError: The ranks came for different things.
        """
        if self._failing is not None:
            raise RankError(kind, got="a collective after a failure", do="Hooks of a failed run work on one rank.")
        if self.over is not None:
            raise rank_error(kind, self.over)
        self._talking = True  # the coordinator answers on this line too when a rank failed: no need to interrupt it
        try:
            header, bodies = self._meet.meet(kind, body)
        except OSError:
            raise rank_error(kind, self.over or self._lost()) from None
        finally:
            self._talking = False
        if header["what"] == "over":
            raise rank_error(kind, from_message(header["failure"]))
        if header["what"] == "apart":
            check_kinds(dict(header["kinds"]))
        return bodies

    def enter(
        self,
        hang_timeout: float | None,
        stand: Callable[[], Position],
        beats: Callable[[], Any],
        rescue: Callable[[BaseException], None],
    ) -> None:
        """A run begins on this rank.

        Args:
            hang_timeout: Seconds without progress after which the run is given up; None: never.
            stand: Where the run stands.
            beats: Anything that differs whenever the run got on.
            rescue: Calls the hooks of a failed run, in another thread, where the main one is blocked in a collective.
        """
        self.over, self._failing, self._told, self.verdict = None, None, None, ""
        self._session += 1
        self._stand, self._beats, self._rescue = stand, beats, rescue
        self._moved, self._hang_timeout = time.monotonic(), hang_timeout
        self._main = threading.current_thread()
        if self._main is threading.main_thread():
            self._before = signal.signal(signal.SIGURG, self._interrupt)
            self._aborts.__enter__()
        self._inside = True
        self._say({"do": "enter", "session": self._session, "hang_timeout": hang_timeout})

    def leave(self) -> None:
        """The run is over on this rank."""
        if not self._inside:
            return
        self._inside = False
        self._stand, self._beats, self._rescue = Position, lambda: 0, lambda _: None
        if self._before is not None:
            self._aborts.__exit__(None, None, None)
            signal.signal(signal.SIGURG, self._before)
            self._before = None
        self._say({"do": "leave"})

    def fail(self, error: BaseException, position: Position) -> None:
        """Tells the others that this rank's run failed; until it has left, nobody is met any more."""
        with self._claim:
            if self._failing is None:
                self._failing = threading.get_ident()
        if self._failing != threading.get_ident():
            threading.Event().wait()  # the watch calls the hooks already, and then ends this process
        self._told = error
        failure = failure_of(error, self.rank, position, self.over)
        self._say({"do": "fail", "failure": to_message(failure)})

    def has_told(self, error: BaseException) -> bool:
        """Whether the others were told of this very exception."""
        return self._told is error

    def settle(self) -> None:
        """Waits, for a few seconds at most, until the other ranks have called their hooks.

        The end of this process would end what they do in a collective.
        """
        if self._alone:
            return
        self._talking = True
        with contextlib.suppress(OSError):
            self._meet.send({"do": "settle"})
            self._meet.socket.settimeout(_SETTLE)
            header: dict[str, Any] = {}
            while header.get("what") != "settled":
                header, _ = self._meet.receive()
            self.verdict = header["text"]
        with contextlib.suppress(OSError):
            self._meet.socket.settimeout(None)
        self._talking = False

    def saved(self, fit: int, path: str) -> None:
        """Tells the supervisor which checkpoint to go on from, should the ranks be started again."""
        self._say({"do": "saved", "fit": fit, "path": path})

    def _say(self, message: dict[str, Any]) -> None:
        """Sends a word that nobody waits for."""
        with contextlib.suppress(OSError):
            self._meet.send(message)

    def _hang_up(self) -> None:
        self._meet.close()
        self._watch.close()

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Ends what the main thread does; it runs there, sent by the watch."""
        if self.over is None or self._failing is not None or self._talking or not self._inside:
            return
        if self.over.kind == "interrupt":
            raise KeyboardInterrupt
        raise rank_error("the run", self.over)

    def _before_abort(self) -> None:
        """This process aborts: gloo does so in backward when the other side of a collective is gone."""
        deadline = time.monotonic() + _TOLD
        while self.over is None and time.monotonic() < deadline:
            time.sleep(_PATIENCE)
        with self._claim:
            if self._failing is not None or not self._inside:
                return
            self._failing = threading.get_ident()
        if self.over is None:  # its own doing: the parent has its last words
            self._rescue(RankError("this process", got="it is aborted; its last words say why"))
            return
        self._save_what_can_be(self.over)
        self._end(self.over)

    # -- what the watch does ----------------------------------------------------------------------------------------

    def _watch_over(self) -> None:
        seen, said, before = self._beats(), 0.0, time.monotonic()
        with contextlib.suppress(OSError, ValueError):  # ValueError: a forked child has closed the line
            while True:
                readable = select.select([self._watch.socket], [], [], _BEAT / 2)[0]
                now = time.monotonic()
                if now - before > _STOPPED:  # this process was stopped meanwhile (Ctrl-Z): it could not have got on
                    self._moved += now - before
                    self._heard += now - before
                before = now
                if (beats := self._beats()) != seen:
                    seen, self._moved = beats, now
                if now - said >= _BEAT:
                    said = now
                    self._watch.send({"do": "beat", "position": self._where(), "idle": now - self._moved})
                if readable:
                    self._heard = now
                    self._obey(self._watch.receive()[0])
                if self._hang_timeout is not None and now - self._heard > self._hang_timeout + _STOPPED:
                    break
        self._alone = True
        self._give_up(self._lost())

    def _obey(self, header: dict[str, Any]) -> None:
        if header["what"] == "stack?":
            frame = sys._current_frames().get(self._main.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
            self._watch.send({"do": "stack", "position": self._where(), "stack": stack})
        elif header["what"] == "over":
            failure = from_message(header["failure"])
            threading.Thread(target=self._give_up, args=(failure,), name="lumen end", daemon=True).start()

    def _where(self) -> dict[str, Any]:
        """Where this rank stands."""
        position = self._stand()
        names: list[str] = []
        frame = sys._current_frames().get(self._main.ident or 0)
        while frame is not None and position.stage:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return attrs.asdict(attrs.evolve(position, hook=innermost_hook(names[::-1])) if names else position)

    def _lost(self) -> Failure:
        return Failure(rank=0, kind="lost", message=_LOST)

    def _give_up(self, failure: Failure) -> None:
        """Ends this rank's run: by an exception where that is possible, else by ending the process."""
        if not self._inside:
            return
        session, self.over = self._session, failure
        time.sleep(_PATIENCE)  # what it waits for usually fails by itself, with more to say
        if self._inside and self._failing is None and self._main.ident is not None:
            with contextlib.suppress(OSError):
                signal.pthread_kill(self._main.ident, signal.SIGURG)
        time.sleep(_BLOCKED)
        with self._claim:
            blocked = self._inside and self._session == session and self._failing is None
            if blocked:
                self._failing = threading.get_ident()
        if blocked:
            hooks = threading.Thread(target=self._save_what_can_be, args=(failure,), name="lumen hooks", daemon=True)
            hooks.start()
            hooks.join(_GRACE)
        else:
            time.sleep(_GRACE)
        if self._inside and self._session == session:
            self._end(failure)

    def _end(self, failure: Failure) -> NoReturn:
        """Ends this process, in whichever thread."""
        if not self.supervised:
            sys.stderr.write(self.verdict or f"lumen: rank {failure.rank}: {failure.words}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(130 if failure.kind == "interrupt" else 1)

    def _save_what_can_be(self, failure: Failure) -> None:
        """What the main thread would do if it were not blocked."""
        self._failing = threading.get_ident()
        error = rank_error("a collective", failure)
        self.fail(error, self._stand())
        self._rescue(error)
        self.settle()
