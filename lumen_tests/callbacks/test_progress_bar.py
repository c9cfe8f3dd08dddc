"""ProgressBar over the real loops: what it writes, how often, what it reads, and how it leaves a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
from fractions import Fraction
from typing import Any

import pytest

from lumen.callbacks.base import Callback
from lumen.callbacks.display import LiveDisplay, PlainDisplay, open_display
from lumen.callbacks.progress_bar import ProgressBar
from lumen.core.cadence import Every, Unit
from lumen.core.policy import Policy, Validation
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import Request
from lumen.errors import ConfigError
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.testing import FakeRuntime
from lumen_tests.callbacks.fakes import FakeTrainer


class Clock(Callback):
    """Time that passes with the batches only."""

    def __init__(self, bar: ProgressBar, *, batch: float = 1.0, evaluation: float = 1.0) -> None:
        self.now = 1000.0
        self._batch, self._evaluation = batch, evaluation
        bar._now = lambda: self.now

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.now += self._batch

    def on_validation_batch_start(
        self, trainer: Any, module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.now += self._evaluation

    on_test_batch_start = on_validation_batch_start
    on_predict_batch_start = on_validation_batch_start


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def log_loss(run: Run) -> None:
    run.logbook.log("loss", 0.5, prog_bar=True)
    run.logbook.log("hidden", 1.0)


def test_a_log_file_gets_a_line_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    trainer = FakeTrainer([Clock(bar, batch=0.5), bar], Policy(max_epochs=2))
    trainer.fit(FakeRuntime([1, 2, 3, 4]), log=log_loss)
    assert shown(capsys) == [
        "epoch 1/2: 4 batches in 2.0 s, 2 steps/s, loss=0.5",
        "epoch 2/2: 4 batches in 2.0 s, 2 steps/s, loss=0.5",
    ]


def test_a_long_epoch_gets_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    trainer = FakeTrainer([Clock(bar), bar], Policy(max_epochs=1, accumulate=2))
    trainer.fit(FakeRuntime(list(range(25))), log=log_loss)
    assert shown(capsys) == [
        "epoch 1/1: 10/25 batches, 0.5 steps/s, 0:15 left, loss=0.5",
        "epoch 1/1: 20/25 batches, 0.5 steps/s, 5.0 s left, loss=0.5",
        "epoch 1/1: 25 batches in 0:25, 0.52 steps/s, loss=0.5",
    ]


def test_an_epoch_that_ends_when_a_line_is_due_has_its_own_line_only(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(plain_every=2)
    FakeTrainer([Clock(bar), bar], Policy(max_epochs=1)).fit(FakeRuntime([1, 2]))
    assert shown(capsys) == ["epoch 1/1: 2 batches in 2.0 s, 1 steps/s"]


def test_values_are_read_only_when_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def reads(callbacks: list[Callback], batches: int) -> int:
        runtime = FakeRuntime(list(range(batches)))
        FakeTrainer(callbacks, Policy(max_epochs=1)).fit(runtime, log=log_loss)
        return runtime.counts["read"]

    for batches, lines in ((9, 0), (99, 9)):
        bar = ProgressBar()
        assert (
            reads([Clock(bar), bar], batches) == reads([], batches) + lines
        )  # the epoch's own line shows what is known by then


def test_many_short_epochs_do_not_flood_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    trainer = FakeTrainer([Clock(bar, batch=0.01), bar], Policy(max_epochs=1000))
    trainer.fit(FakeRuntime([1]))
    lines = shown(capsys)
    assert 35 <= len(lines) <= 45  # 30 at once, then one a second for 10 s
    assert lines[0].startswith("epoch 1/1000:")
    assert lines[-1].startswith("epoch 1000/1000:")


def test_an_epochs_line_shows_the_values_over_the_whole_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    """The mean of the last epoch, not of the one before, and not the last step's value."""
    values = iter([1.0, 3.0, 5.0, 9.0])

    def log(run: Run) -> None:
        run.logbook.log("loss", next(values), prog_bar=True, on_epoch=True)

    bar = ProgressBar()
    FakeTrainer([bar], Policy(max_epochs=2)).fit(FakeRuntime([1, 2]), log=log)
    first, second = shown(capsys)
    assert "loss=2" in first.split(", ")
    assert "loss=7" in second.split(", ")


def test_validation_inside_an_epoch_has_a_line_and_stops_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    def log(run: Run) -> None:
        if run.stage is Stage.VALIDATE:
            run.logbook.log("acc", 0.75, prog_bar=True)

    bar = ProgressBar(plain_every=1000)
    policy = Policy(max_epochs=1, validate=Validation(every=Every(Fraction(1, 2), Unit.EPOCH), nth_epoch=1))
    trainer = FakeTrainer([Clock(bar, batch=0.5, evaluation=40.0), bar], policy)
    trainer.fit(FakeRuntime([1, 2, 3, 4], evaluation=[[1, 2]]), log=log)
    assert shown(capsys) == [
        "epoch 1/1, validated after 2/4 batches: acc=0.75",
        "epoch 1/1: 4 batches in 2.0 s, 2 steps/s, acc=0.75",
    ]


def test_a_long_validation_shows_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    policy = Policy(max_epochs=1, validate=Validation(every=Every(1, Unit.EPOCH)))
    trainer = FakeTrainer([Clock(bar, evaluation=4.0), bar], policy)
    trainer.fit(FakeRuntime([1, 2], evaluation=[[1, 2, 3], [4, 5]]))
    lines = shown(capsys)
    assert lines[0] == "validation: 2/5 batches, 0.25 batches/s, 0:12 left"
    assert lines[-1] == "epoch 1/1: 2 batches in 2.0 s, 1 steps/s"


def test_a_sanity_check_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    policy = Policy(max_epochs=1, validate=Validation(every=Every(1, Unit.EPOCH)))
    FakeTrainer([Clock(bar, evaluation=11.0), bar], policy).fit(FakeRuntime([1], evaluation=[[1]]), sanity=True)
    assert shown(capsys)[0] == "sanity check: 1 batches, 0.0909 batches/s"


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (Stage.VALIDATE, "validation: 3 batches in 3.0 s, acc=0.25, other=2"),
        (Stage.TEST, "test: 3 batches in 3.0 s, acc=0.25, other=2"),
        (Stage.PREDICT, "predict: 3 batches in 3.0 s"),
    ],
)
def test_an_evaluation_alone_shows_its_result(stage: Stage, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    def log(run: Run) -> None:
        run.logbook.log("acc", 0.25, prog_bar=True)
        run.logbook.log("other", 2.0)

    bar = ProgressBar()
    FakeTrainer([Clock(bar), bar]).evaluate(FakeRuntime([], evaluation=[[1, 2, 3]]), stage, log=log)
    assert shown(capsys) == [expected]


def test_a_resumed_run_starts_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(plain_every=1.5)
    state = TrainState(progress=Progress(epoch=2, batch=3, step=11, batches=11))
    FakeTrainer([Clock(bar), bar], Policy(max_epochs=3)).fit(FakeRuntime([1, 2, 3, 4, 5, 6]), state=state)
    assert shown(capsys) == [
        "epoch 3/3: 5/6 batches, 1 steps/s, 1.0 s left",
        "epoch 3/3: 6 batches in 3.0 s, 1 steps/s",
    ]


def test_max_steps_shortens_the_epoch_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(plain_every=2)
    FakeTrainer([Clock(bar), bar], Policy(max_steps=3)).fit(FakeRuntime(list(range(100))))
    assert shown(capsys) == [
        "epoch 1: 2/3 batches, 1 steps/s, 1.0 s left",
        "epoch 1: 3/100 batches, 1 steps/s, stopped: max_steps",
    ]


@pytest.mark.parametrize(("reason", "said"), [("", "request"), ("no gain for 3 epochs", "no gain for 3 epochs")])
def test_a_requested_stop_is_said(reason: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Stopping(Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            trainer.run.ask(Request(stop=True, reason=reason))

    bar = ProgressBar()
    FakeTrainer([Clock(bar), bar, Stopping()], Policy(max_epochs=9)).fit(FakeRuntime([1, 2]))
    assert shown(capsys) == [f"epoch 1/9: 2 batches in 2.0 s, 1 steps/s, stopped: {said}"]


def test_a_request_that_a_limit_overtook_is_not_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopping(Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            trainer.run.ask(Request(stop=True, reason="too early"))

    bar = ProgressBar()
    FakeTrainer([Stopping(), Clock(bar), bar], Policy(max_steps=1, min_steps=9)).fit(FakeRuntime([1, 2]))
    assert shown(capsys) == ["epoch 1: 1/2 batches, 1 steps/s, stopped: max_steps"]


def test_other_ranks_show_and_read_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    runtime = FakeRuntime(list(range(100)), evaluation=[[1]])
    policy = Policy(max_epochs=1, validate=Validation(every=Every(Fraction(1, 2), Unit.EPOCH), nth_epoch=1))
    FakeTrainer([Clock(bar), bar], policy, rank=1).fit(runtime, log=log_loss)
    assert capsys.readouterr() == ("", "")
    bare = FakeRuntime(list(range(100)), evaluation=[[1]])
    FakeTrainer([], policy).fit(bare, log=log_loss)
    assert runtime.counts == bare.counts


def test_what_is_shown_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    class Mine(ProgressBar):
        def get_metrics(self, trainer: Any, module: Any) -> dict[str, Any]:
            return {**super().get_metrics(trainer, module), "phase": "warm-up"}

    FakeTrainer([Mine()], Policy(max_epochs=1)).fit(FakeRuntime([1]), log=log_loss)
    assert shown(capsys)[0].endswith("loss=0.5, phase=warm-up")


@pytest.mark.parametrize("value", [0, -1, "1", None, True, float("nan")])
def test_an_interval_that_is_none_is_refused(value: Any) -> None:
    for name in ("refresh_rate", "plain_every"):
        with pytest.raises(ConfigError, match=rf"ProgressBar\({name}\).*enable_progress_bar=False"):
            ProgressBar(**{name: value})


# -- streams ----------------------------------------------------------------------------------------------------------


def run_with_stdout(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bar = ProgressBar(plain_every=1)
    trainer = FakeTrainer([Clock(bar), bar], Policy(max_epochs=1))
    monkeypatch.setattr(sys, "stdout", stream)
    trainer.fit(FakeRuntime([1, 2, 3]), log=lambda run: run.logbook.log("é", 1.0, prog_bar=True))
    assert sys.stdout is stream
    assert trainer.progress.epoch == 1


def test_no_stdout_a_closed_one_and_one_without_isatty_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()

    class Odd:
        def write(self, text: str) -> None:
            raise OSError("no space")

        def flush(self) -> None: ...

    for stream in (None, closed, Odd()):
        run_with_stdout(stream, monkeypatch)


def test_a_broken_pipe_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    run_with_stdout(stream, monkeypatch)
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def test_a_stream_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding="ascii")
    run_with_stdout(stream, monkeypatch)
    assert rb"\xe9=1" in data.getvalue()


def test_a_stdout_that_is_replaced_in_the_run_gets_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    buffer = io.StringIO()

    class Redirecting(Callback):
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            stack.enter_context(contextlib.redirect_stdout(buffer))

    bar = ProgressBar()
    with contextlib.ExitStack() as stack:
        FakeTrainer([Redirecting(), bar], Policy(max_epochs=1)).fit(FakeRuntime([1]))
    assert buffer.getvalue().startswith("epoch 1/1: 1 batches")
    assert capsys.readouterr().out == ""


# -- a terminal -------------------------------------------------------------------------------------------------------


class Terminal:
    """A real pseudo-terminal as stdout; `text` is what arrived on its other side."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("rich")
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        self._master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._data: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        monkeypatch.setattr(sys, "stdout", self.stream)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                self._data.append(data)

    def close(self) -> str:
        self.stream.close()
        self._reader.join(timeout=5)  # reading ends in an error once the other side is closed
        os.close(self._master)
        return b"".join(self._data).decode()


def test_a_terminal_gets_a_live_bar_and_a_line_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    threads, most = threading.active_count(), []

    class Counting(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            most.append(threading.active_count())

    bar = ProgressBar()
    trainer = FakeTrainer(
        [Clock(bar), bar, Counting()], Policy(max_epochs=2, validate=Validation(every=Every(1, Unit.EPOCH)))
    )
    trainer.fit(FakeRuntime([1, 2, 3], evaluation=[[1]]), log=log_loss)
    assert sys.stdout is terminal.stream
    assert set(most) == {threads}  # nothing draws behind the training's back
    text = terminal.close()
    assert "1/3 batches" in text
    assert "2/3 batches" in text
    assert "validation" in text
    assert "epoch 1/2: 3 batches in 3.0 s, 1 steps/s, loss=0.5" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden and shown again


def test_a_bar_is_drawn_at_its_rate_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    bar = ProgressBar(refresh_rate=5.0)
    FakeTrainer([Clock(bar), bar], Policy(max_epochs=1)).fit(FakeRuntime(list(range(20))))
    text = terminal.close()
    drawn = [count for count in range(1, 20) if f" {count}/20 batches" in text]
    assert drawn == [1, 6, 11, 16]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_an_exception_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    terminal = Terminal(monkeypatch)
    seen: list[Any] = []

    class Failing(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen.append(sys.stdout)
            if batch_idx == 1:
                raise error

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            seen.append(sys.stdout)

    bar = ProgressBar()
    with pytest.raises(type(error)):
        FakeTrainer([Clock(bar), bar, Failing()], Policy(max_epochs=1)).fit(FakeRuntime([1, 2, 3]))
    assert seen[0] is not terminal.stream  # the bar was up: prints go above it
    assert seen[-1] is terminal.stream  # and it is gone before anybody shows the error
    assert sys.stdout is terminal.stream
    assert terminal.close().endswith("\x1b[2K")  # its line is wiped


def test_what_the_user_prints_comes_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)

    class Printing(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            print(f"hello [bold] {batch_idx}")

    bar = ProgressBar()
    FakeTrainer([Clock(bar), bar, Printing()], Policy(max_epochs=1)).fit(FakeRuntime([1, 2]))
    assert "hello [bold] 0" in terminal.close()


def test_a_terminal_that_goes_away_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)

    class Closing(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            terminal.stream.close()

    bar = ProgressBar()
    trainer = FakeTrainer([Clock(bar), bar, Closing()], Policy(max_epochs=2))
    trainer.fit(FakeRuntime([1, 2, 3]))
    assert trainer.progress.epoch == 2
    assert sys.stdout is terminal.stream


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("TTY_COMPATIBLE", "0")])
def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    terminal = Terminal(monkeypatch)
    assert isinstance(open_display(), LiveDisplay)
    monkeypatch.setenv(name, value)
    assert isinstance(open_display(), PlainDisplay)
    terminal.close()


def test_forced_colours_do_not_turn_a_log_file_into_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert isinstance(open_display(), PlainDisplay)


def test_rich_is_imported_only_for_a_terminal() -> None:
    script = (
        "import sys; import lumen.callbacks.progress_bar; from lumen.callbacks.display import open_display;"
        "open_display().line('x'); assert not any(name.partition('.')[0] == 'rich' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, stdout=subprocess.PIPE)
