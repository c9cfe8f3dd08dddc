"""Roll: what the coordinator knows of the ranks, and what it tells them. No socket and no clock of its own."""

from __future__ import annotations

import signal
from typing import Any

import attrs

from lumen.core.faults import Failure, Kind, Position, first_failure, from_message, to_message
from lumen.shell.ranks.standing import Rank, describe, signal_name
from lumen.shell.ranks.standstill import SILENT, apart, standstill
from lumen.shell.ranks.wire import Message

MEET, WATCH = "meet", "watch"
_ANSWER = 2.0  # seconds that ranks get to say where they stand
_PING = 1.0  # seconds between two words to each rank


class Roll:
    """The state of all ranks.

    Args:
        size: Number of ranks.
        now: The time, in seconds.

    Attributes:
        outbox: For each message to send: the rank, the channel (`MEET` or `WATCH`), and the message.
        failures: Of all ranks, as they came.
        saved: For each fit of the program, by its number, the newest checkpoint.
        hang_timeout: Seconds without any progress of a rank after which the run is given up; None: never.
    """

    def __init__(self, size: int, now: float = 0.0) -> None:
        self.ranks = [Rank(heard=now, moved=now) for _ in range(size)]
        self.outbox: list[tuple[int, str, Message]] = []
        self.failures: list[Failure] = []
        self.saved: dict[int, str] = {}
        self.hang_timeout: float | None = None
        self._hang_since: float | None = None
        self._asked_at: float | None = None
        self._ticked = self._pinged = now

    # -- what ranks say ---------------------------------------------------------------------------------------------

    def take(self, number: int, header: dict[str, Any], body: bytes, now: float) -> None:
        """A message of a rank."""
        rank = self.ranks[number]
        rank.heard = now
        what = header["do"]
        if what == "beat":
            rank.position = Position(**header["position"])
            rank.moved = max(rank.moved, now - header["idle"])
        elif what == "stack":
            rank.position, rank.stack = Position(**header["position"]), header["stack"]
        elif what == "meet":
            rank.moved = now
            self._arrive(number, (header["number"], header["kind"], body))
        elif what == "enter":
            self._enter(rank, header, now)
        elif what == "leave":
            rank.inside = False
        elif what == "fail":
            self._fail(number, attrs.evolve(from_message(header["failure"]), time=now), now)
        elif what == "settle":
            rank.settling = True
        elif what == "saved":
            self.saved[header["fit"]] = header["path"]

    def lost(self, number: int, now: float) -> None:
        """A rank's process is gone."""
        rank = self.ranks[number]
        if rank.gone:
            return
        rank.gone, rank.waiting = True, None
        waited_for = any(other.waiting for other in self.ranks)
        if rank.failure is None:
            words = "it died without a word" if rank.inside else "it has ended"
            rank.failure = Failure(rank=number, kind="lost", message=words, position=rank.position, time=now)
            if rank.inside or waited_for:
                self.failures.append(rank.failure)
        self._release(rank.failure)
        if any(other.inside for other in self.ranks if not other.gone):
            self._ask_stacks(now)
        rank.inside = False

    def ended(self, number: int, code: int, words: str, now: float) -> None:
        """A rank's process ended, as its parent sees it.

        Args:
            number: The rank.
            code: Its exit code; below zero: the signal that ended it.
            words: What it wrote last.
            now: The time.
        """
        rank = self.ranks[number]
        self.lost(number, now)
        rank.code = code
        failure = rank.failure
        if failure is None or failure.kind != "lost":
            return
        others = " while the others went on" if code == 0 else ""
        message = f"ended with exit code {code}{others}" if code >= 0 else f"was ended by {signal_name(-code)}"
        kind: Kind = (
            "error"
            if code == 1
            else "exit"
            if code > 0
            else "peer"
            if code == -signal.SIGABRT and self.failures[:1] != [failure]
            else "lost"
        )
        rank.failure = attrs.evolve(failure, message=message, traceback=words if code else "", kind=kind)
        if failure in self.failures:
            self.failures[self.failures.index(failure)] = rank.failure
        elif code:
            self.failures.append(rank.failure)

    def declare(self, failure: Failure, now: float) -> None:
        """Ends the runs of all ranks for a reason that none of them gave."""
        self.failures.append(failure)
        self._release(failure)
        self._ask_stacks(now)
        for number, rank in enumerate(self.ranks):
            self._give_up(number, rank, failure)

    def _enter(self, rank: Rank, header: dict[str, Any], now: float) -> None:
        if header["session"] > max(one.session for one in self.ranks):
            self.failures.clear()  # of runs before, which the program survived
        for other in self.ranks:
            if not other.session:  # the wait for those that are still on their way begins now
                other.moved = max(other.moved, now)
        rank.session, rank.inside = header["session"], True
        rank.failure, rank.told, rank.settling, rank.moved = None, False, False, now
        self.hang_timeout = header["hang_timeout"]
        self._hang_since = None

    def _fail(self, number: int, failure: Failure, now: float) -> None:
        rank = self.ranks[number]
        self.failures.append(failure)
        rank.failure, rank.position, rank.waiting = failure, failure.position, None
        self._release(failure)
        self._ask_stacks(now)

    # -- meetings ---------------------------------------------------------------------------------------------------

    def _arrive(self, number: int, waiting: tuple[int, str, bytes]) -> None:
        rank = self.ranks[number]
        rank.waiting = waiting
        for other in self.ranks:
            if other is not rank and other.failure is not None and (other.gone or other.session == rank.session):
                if other.failure not in self.failures:
                    self.failures.append(other.failure)
                self._over(number, other.failure)
                return
        waits = {one: self.ranks[one].waiting for one in range(len(self.ranks))}
        met = {one: wait for one, wait in waits.items() if wait is not None}
        if len({kind for _, kind, _ in met.values()}) > 1:
            kinds = [(one, kind) for one, (_, kind, _) in met.items()]
            for one in met:
                self._answer(one, {"what": "apart", "kinds": kinds})
        elif len(met) == len(self.ranks):
            bodies = [body for _, _, body in met.values()]
            for one in met:
                self._answer(one, {"what": "met", "sizes": [len(body) for body in bodies]}, b"".join(bodies))

    def _answer(self, number: int, header: dict[str, Any], body: bytes = b"") -> None:
        waiting, self.ranks[number].waiting = self.ranks[number].waiting, None
        if waiting is not None:
            self.outbox.append((number, MEET, ({**header, "number": waiting[0]}, body)))

    def _release(self, failure: Failure) -> None:
        """Tells those that wait that nobody comes."""
        for number in range(len(self.ranks)):
            self._over(number, failure)

    def _over(self, number: int, failure: Failure) -> None:
        self._answer(number, {"what": "over", "failure": to_message(failure)})

    # -- as time goes by --------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """What is due: ranks that go on after a failure are told, a standstill is found, a verdict is given."""
        if (pause := now - self._ticked) > SILENT:  # this process was stopped (Ctrl-Z): it could hear nobody
            for rank in self.ranks:
                rank.heard, rank.moved = rank.heard + pause, rank.moved + pause
        self._ticked = now
        if now - self._pinged > _PING:
            self._pinged = now
            self.outbox += [(number, WATCH, ({"what": "ping"}, b"")) for number in range(len(self.ranks))]
        if self._asked_at is not None and (self._all_answered() or now - self._asked_at > _ANSWER):
            self._asked_at = None
            first = self.first
            for number, rank in enumerate(self.ranks):
                if first is not None and rank.failure is None and first.rank != number:
                    self._give_up(number, rank, first)
        lost = self.beyond_help(now)
        if self._asked_at is None and all(
            one.settling or one.gone or not one.inside or number in lost for number, one in enumerate(self.ranks)
        ):
            for number, rank in enumerate(self.ranks):
                if rank.settling:
                    rank.settling = False
                    self.outbox.append((number, MEET, ({"what": "settled", "text": self.report()}, b"")))
        failure = None if any(rank.failure is not None for rank in self.ranks) else apart(self.ranks, now)
        if failure is not None:
            self.declare(failure, now)
        self._look_for_hang(now)

    def _look_for_hang(self, now: float) -> None:
        limit = self.hang_timeout
        watched = [rank for rank in self.ranks if rank.inside or not rank.session]
        if limit is None or any(rank.failure is not None for rank in self.ranks):
            return
        if self._hang_since is None:
            if any(now - rank.moved > limit for rank in watched):
                self._hang_since = now
                self._ask_stacks(now)
            return
        if self._asked_at is not None:
            return
        since, self._hang_since = self._hang_since, None
        if any(now - rank.moved > limit for rank in watched):
            failure = standstill(self.ranks, since, limit, now)
            self.ranks[failure.rank].failure = failure
            self.declare(failure, now)

    def _ask_stacks(self, now: float) -> None:
        if self._asked_at is not None:
            return
        self._asked_at = now
        for number, rank in enumerate(self.ranks):
            if rank.inside and not rank.gone and rank.failure is None:
                rank.stack = ""
                self.outbox.append((number, WATCH, ({"what": "stack?"}, b"")))

    def _all_answered(self) -> bool:
        return all(rank.stack or rank.gone or not rank.inside or rank.failure is not None for rank in self.ranks)

    def _give_up(self, number: int, rank: Rank, failure: Failure) -> None:
        if rank.inside and not rank.gone and not rank.told:
            rank.told = True
            self.outbox.append((number, WATCH, ({"what": "over", "failure": to_message(failure)}, b"")))

    # -- what is known ----------------------------------------------------------------------------------------------

    @property
    def first(self) -> Failure | None:
        """The failure that the others follow from."""
        return first_failure(self.failures)

    @property
    def doomed(self) -> bool:
        """Whether the job is lost: a rank's process ended too early or badly, or somebody declared the end."""
        ended = any(rank.gone and (rank.code or rank.failure in self.failures) for rank in self.ranks)
        return ended or any(failure.kind in ("hang", "apart", "interrupt") for failure in self.failures)

    def beyond_help(self, now: float) -> set[int]:
        """The ranks that stood still and say nothing: stopped ones, which no exception reaches."""
        return {
            number
            for number, rank in enumerate(self.ranks)
            if rank.failure is not None and rank.failure.kind == "hang" and now - rank.heard > SILENT
        }

    def report(self) -> str:
        """Where each rank stood and, last, the words of the one that failed first."""
        return describe(self.ranks, self.first)
