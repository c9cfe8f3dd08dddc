"""Supervisor: this process starts all ranks, watches over them, and starts them again where that may help."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, NoReturn

import attrs

from lumen.core.devices import DevicePlan
from lumen.core.faults import Failure, restart_refusal
from lumen.core.supervising import OUTPUTS, Supervision
from lumen.core.world import Launch, rank_environments
from lumen.shell.ranks.child import Child
from lumen.shell.ranks.command import repeated_command
from lumen.shell.ranks.coordinator import Coordinator
from lumen.shell.ranks.ports import HeldPorts
from lumen.shell.ranks.processes import end_leftovers
from lumen.shell.ranks.supervision import variables

_POLL = 0.05
_LOOK = 1.0  # seconds between two looks at what the ranks have started
_GRACE = 6.0  # seconds that ranks get to end by themselves once the job is lost; then `_LAST` until they are killed
_LAST = 1.0
_SAVING = 60.0  # seconds that ranks which were asked to stop get to agree on a step and to save
_CONNECTS = 3  # attempts of ranks that do not find each other: of 16 starts of three ranks on gloo 5 hung


@attrs.frozen(kw_only=True)
class Outcome:
    """How all ranks ended.

    Args:
        code: The exit code, as a shell has it.
        failure: What failed first; None: nothing.
        report: What to print.
        saved: For each fit of the program, by its number, the checkpoint to go on from.
    """

    code: int
    failure: Failure | None
    report: str
    saved: Mapping[int, str]


def launch(plan: DevicePlan, supervision: Supervision, stop_signals: Sequence[int]) -> NoReturn:
    """Runs this program once per rank, as children that this process only watches, and ends with their exit code.

    The command line is repeated as it was typed. When a rank fails, the others get seconds to call their hooks and to
    end; where each of them stood and, last, the traceback of the one that failed first are printed.

    Args:
        plan: The devices, one for each rank.
        supervision: What is done about ranks that fail, and what is shown of them.
        stop_signals: Signals on which the ranks save and stop: they are handed on.

    Raises:
        SystemExit: Always, at the end: with 0, or the first failing rank's code.
    """
    outcome = supervise(repeated_command(), plan, supervision, stop_signals)
    sys.stdout.flush()
    _say(outcome.report)
    raise SystemExit(outcome.code)


def supervise(
    command: Sequence[str],
    plan: DevicePlan,
    supervision: Supervision,
    stop_signals: Sequence[int],
    *,
    inherited: Sequence[int] = (),
) -> Outcome:
    """Runs a command once per rank, until all have ended for good; see `launch`.

    Args:
        command: The command.
        plan: The devices, one for each rank.
        supervision: What is done about ranks that fail, and what is shown of them.
        stop_signals: Signals on which the ranks save and stop: they are handed on.
        inherited: Numbers of files that the ranks inherit. With some, rank 0 does not get this program's own input and
            output, which may be those of a notebook's server: what it writes is shown as `print` would.
    """
    history: list[Failure] = []
    connects, saved, signals = 1, dict[int, str](), _Signals(stop_signals)
    with signals:
        while True:
            outcome = _Attempt(plan, supervision, command, saved, signals, inherited=inherited).run()
            saved.update(outcome.saved)
            if outcome.failure is None or signals.asked:
                break
            if outcome.failure.kind == "connect" and connects < _CONNECTS:
                connects += 1
                _say(f"lumen: {outcome.failure.message}\nlumen: trying again ({connects} of {_CONNECTS})\n")
                continue
            history.append(outcome.failure)
            refusal = restart_refusal(history, supervision.max_restarts)
            if refusal:
                if supervision.max_restarts:
                    _say(f"lumen: the ranks are not started again: {refusal}\n")
                break
            _say(_announcement(outcome.report, saved, len(history), supervision.max_restarts))
    return outcome


def _announcement(report: str, saved: Mapping[int, str], number: int, limit: int) -> str:
    source = max(saved.items(), default=(0, ""))[1]
    place = f"from {source}" if source else "from the start: nothing was saved yet"
    return f"{report}lumen: all ranks are started again ({number} of {limit}), {place}\n"


class _Signals:
    """A context in which signals to the supervisor are kept for the attempt that runs.

    Args:
        stops: Signals to hand on to the ranks.
    """

    def __init__(self, stops: Sequence[int]) -> None:
        self.stops = stops
        self._before: dict[int, Any] = {}
        self.interrupts = 0
        self.asked: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in {*self.stops, signal.SIGINT, signal.SIGTERM, signal.SIGHUP}:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupts += 1
        else:
            self.asked.append(number)


class _Attempt:
    """All ranks, from their start until the last of them has ended."""

    def __init__(
        self,
        plan: DevicePlan,
        supervision: Supervision,
        command: Sequence[str],
        saved: Mapping[int, str],
        signals: _Signals,
        *,
        inherited: Sequence[int],
    ) -> None:
        self._plan = plan
        self._supervision = supervision
        self._command = command
        self._saved = saved
        self._signals = signals
        self._inherited = inherited
        self._children: list[Child] = []
        self._forwarded = 0
        self._declared = False
        self._doomed_at: float | None = None
        self._terminated = False
        self._looked = 0.0
        self._coordinator: Coordinator

    def run(self) -> Outcome:
        self._coordinator = Coordinator(len(self._plan.ids))
        try:
            with HeldPorts(len(self._plan.ids)) as ports:
                self._start(ports)
                self._watch()
                return self._conclude()
        finally:
            for child in self._children:
                if child.poll() is None:
                    child.send(signal.SIGKILL)
            self._coordinator.close()
            for child in self._children:
                child.close()

    def _start(self, ports: tuple[int, ...]) -> None:
        output = self._supervision.folder or str(self._supervision.rank_output)
        told = variables(self._coordinator.port, self._coordinator.token, self._saved, quiet=output in OUTPUTS)
        for rank, own in enumerate(rank_environments(Launch(kind=self._plan.kind, ids=self._plan.ids, ports=ports))):
            environ = {**os.environ, **told, **own}
            self._children.append(Child(rank, self._command, environ, output, inherited=self._inherited))

    # -- while they run ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Until all ranks have ended."""
        while alive := self._note_ends():
            now = time.monotonic()
            if now - self._looked > _LOOK:
                self._looked = now
                for child in alive:
                    child.look()
            self._obey(alive)
            self._press(alive, now)
            time.sleep(_POLL)

    def _note_ends(self) -> list[Child]:
        """Notes which ranks have ended; those that gloo aborted come last: the end of another one does that to them."""
        running = [child for child in self._children if child.code is None]
        ended = [child for child in running if child.poll() is not None]
        for child in sorted(ended, key=lambda child: child.code == -signal.SIGABRT):
            self._coordinator.ended(child.rank, child.code or 0, child.last_words())
        return [child for child in running if child.code is None]

    def _obey(self, alive: Sequence[Child]) -> None:
        """Does what signals to this process ask for."""
        signals = self._signals
        if signals.interrupts and not self._declared:
            self._declared = True
            self._coordinator.declare(Failure(rank=-1, kind="interrupt", message="lumen: interrupted"))
        for number in signals.asked[self._forwarded :]:
            self._forwarded += 1
            for child in alive:
                child.send(number)

    def _press(self, alive: Sequence[Child], now: float) -> None:
        """Ends what does not end by itself."""
        if self._signals.interrupts > 1 or len(self._signals.asked) > 2:
            _kill(alive)
        with self._coordinator.lock:
            doomed, stopped = self._coordinator.roll.doomed, self._coordinator.roll.beyond_help(now)
        if self._doomed_at is None:
            if not doomed and not self._forwarded:
                return
            self._doomed_at = now
        stops = {128 + number for number in self._signals.stops}
        patient = self._forwarded or {child.code for child in self._children if child.code is not None} <= {0, *stops}
        past = now - self._doomed_at - (_SAVING if patient and not self._declared else _GRACE)
        if past > _LAST or {child.rank for child in alive} <= stopped:
            _kill(alive)
        elif past > 0 and not self._terminated:
            self._terminated = True
            for child in alive:
                child.send(signal.SIGTERM)

    # -- at the end -------------------------------------------------------------------------------------------------

    def _conclude(self) -> Outcome:
        began = {pid: when for child in self._children for pid, when in child.began.items()}
        roll = self._coordinator.roll
        with self._coordinator.lock:
            failure, report, saved = roll.first, roll.report(), dict(roll.saved)
        codes = [child.code or 0 for child in self._children]
        stopped = {128 + number: number for number in (*self._signals.stops, *self._signals.asked)}
        asked = [stopped[code] for code in map(_shell_code, codes) if code in stopped]
        dead = any(one.kind == "lost" for one in roll.failures)  # without a word, in the middle of a run
        if not any(codes) and not dead:  # a failure that all ranks survived was the program's to judge
            return Outcome(code=0, failure=None, report="", saved=saved)
        end_leftovers(began)
        if self._signals.interrupts:
            return Outcome(code=130, failure=failure, report=report, saved=saved)
        if asked and all(code in (0, *stopped) for code in map(_shell_code, codes)) and self._was_asked(failure):
            word = f"lumen: stopped by {signal.Signals(asked[0]).name}\n"
            return Outcome(code=128 + asked[0], failure=None, report=word, saved=saved)
        own = codes[failure.rank] if failure is not None and failure.rank >= 0 else 0
        code = _shell_code(own or next(filter(None, codes), 1))
        return Outcome(code=code, failure=failure, report=report, saved=saved)

    def _was_asked(self, failure: Failure | None) -> bool:
        """Whether the ranks stopped on request: this process's, or by themselves with the request's own exit code."""
        return bool(self._signals.asked) or failure is None or all((child.code or 0) >= 0 for child in self._children)


def _kill(alive: Sequence[Child]) -> None:
    for child in alive:
        child.send(signal.SIGKILL)


def _shell_code(code: int) -> int:
    """An exit code as a shell has it, where a signal ended the process."""
    return code if code >= 0 else 128 - code


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
