"""ProgressBar: how far a run is, shown at a sane pace."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lumen.callbacks.base import Callback
from lumen.callbacks.display import Screen, open_display
from lumen.callbacks.views import Meter, View, metric_texts, rate, span
from lumen.core.policy import StopReason
from lumen.errors import ConfigError

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer import Trainer

_TRAIN, _EVAL = "train", "eval"


class ProgressBar(Callback):
    """Shows epoch, batches, steps per second and the values logged with ``prog_bar=True``.

    On a terminal it is a live bar, with a line that stays for each epoch. Elsewhere, in a log file say, it is plain
    lines: one for each epoch, and one every `plain_every` seconds in a long one. Only rank 0 shows anything.

    Values are read from the device only when they are shown.

    Args:
        refresh_rate: Seconds between two drawings of the live bar, > 0.
        plain_every: Seconds between two plain lines inside an epoch or an evaluation, > 0.

    Raises:
        ConfigError: One of them is not a number > 0.

    Example:
        >>> ProgressBar(plain_every=60).plain_every
        60
    """

    def __init__(self, refresh_rate: float = 0.25, plain_every: float = 10.0) -> None:
        _check_seconds("refresh_rate", refresh_rate)
        _check_seconds("plain_every", plain_every)
        self.refresh_rate = refresh_rate
        self.plain_every = plain_every
        self._now = time.monotonic
        self._screen = Screen(None, self._now)
        self._stage = "fit"

    def get_metrics(self, trainer: Trainer, module: Module) -> Mapping[str, Any]:
        """What to show beside the counts, by name; override it to add or leave out values.

        It is called only when something is shown. Reading `trainer.progress_bar_metrics` costs a host read.
        """
        return trainer.progress_bar_metrics

    # -- begin and end ------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Looks at the terminal; shows nothing yet."""
        self._screen.close()
        display = open_display() if trainer.is_global_zero else None
        self._screen = Screen(display, self._now, self.refresh_rate, self.plain_every)
        self._stage = stage
        self._ended: tuple[int, int, Meter] | None = None

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Leaves the terminal as it was."""
        self._screen.close()

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Leaves the terminal as it was, before the traceback is shown."""
        self._screen.close()

    # -- training -----------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Counts from where the run stands, which on resume is inside an epoch."""
        self._begin_epoch(trainer)
        self._screen.start()

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Writes the line of the epoch before, whose values over all ranks are known by now."""
        self._write_ended(trainer, module)
        self._begin_epoch(trainer)

    def on_train_batch_end(self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Shows how far the epoch is, if it is time."""
        if self._now() < self._screen.due:  # all that a batch costs
            return
        if trainer.progress.batch:  # else the epoch is over: its line follows
            self._screen.show(_TRAIN, self._training(trainer, self.get_metrics(trainer, module)))

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Keeps how long the epoch took, until its values are merged over the ranks."""
        progress = trainer.progress
        self._meter.read(self._now(), progress.step)
        batches = self._batch + progress.batches - self._batches
        self._ended = (progress.epoch, batches, self._meter)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Writes the line of the last epoch, and why the run ended if that was not its length in epochs."""
        reason = trainer.stop_reason
        asked = reason is StopReason.REQUEST and trainer.stop_message
        suffix = "" if reason in (None, StopReason.MAX_EPOCHS) else f", stopped: {asked or reason.value}"
        if self._ended is None and trainer.progress.batch > 0:
            view = self._training(trainer, self.get_metrics(trainer, module), left=False)
            self._screen.write(f"{view}{suffix}")
        self._write_ended(trainer, module, suffix=suffix, always=True)
        self._screen.close()

    def _begin_epoch(self, trainer: Trainer) -> None:
        progress = trainer.progress
        self._meter = Meter(self._now(), progress.step)
        self._batch, self._batches = progress.batch, progress.batches

    def _write_ended(self, trainer: Trainer, module: Module, *, suffix: str = "", always: bool = False) -> None:
        ended, self._ended = self._ended, None
        if ended is None or not self._screen.may_write(always=always):
            return
        epoch, batches, meter = ended
        facts = [f"{batches} batches in {span(meter.elapsed)}", f"{rate(meter.mean)} steps/s"]
        facts += metric_texts(self.get_metrics(trainer, module))
        self._screen.write(f"{_title(trainer, epoch)}: {', '.join(facts)}{suffix}")

    def _training(self, trainer: Trainer, metrics: Mapping[str, Any], *, left: bool = True) -> View:
        """How far the epoch is; `left`: towards its end or that of the run, else of the whole epoch."""
        progress, total = trainer.progress, _epoch_batches(trainer, of_run=left)
        speed = self._meter.read(self._now(), progress.step)
        steps = (total - progress.batch) / trainer.accumulate_grad_batches if total is not None else None
        return View(
            title=_title(trainer, progress.epoch + 1),
            done=progress.batch,
            total=total,
            speed=speed,
            unit="steps",
            left=steps / speed if left and steps is not None and speed else None,
            metrics=metrics,
        )

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Counts the batches from here on."""
        self._done = 0
        self._eval_meter = Meter(self._now(), 0)
        if self._screen.due == math.inf:
            self._screen.start()

    on_test_start = on_validation_start
    on_predict_start = on_validation_start

    def on_validation_batch_end(
        self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Shows how far the evaluation is, if it is time."""
        self._done += 1
        if self._now() < self._screen.due:
            return
        speed, total = self._eval_meter.read(self._now(), self._done), _eval_batches(trainer)
        left = (total - self._done) / speed if total is not None and speed else None
        view = View(title=self._evaluation(trainer), done=self._done, total=total, speed=speed, left=left)
        self._screen.show(_EVAL, view)

    on_test_batch_end = on_validation_batch_end
    on_predict_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Writes the values of a validation inside an epoch, or of one alone; an epoch's last one is in its line."""
        self._eval_meter.read(self._now(), self._done)
        self._screen.drop(_EVAL)
        plan = trainer.plan
        if self._stage != "fit":
            values = {} if self._stage == "predict" else trainer.callback_metrics
            facts = [f"{self._done} batches in {span(self._eval_meter.elapsed)}", *metric_texts(values)]
            self._screen.write(f"{self._evaluation(trainer)}: {', '.join(facts)}")
        elif plan is not None:
            self._meter.pause(self._eval_meter.elapsed)
            if not plan.end_epoch and self._screen.may_write():
                values = self.get_metrics(trainer, module)
                view = self._training(trainer, values, left=False)
                self._screen.write(f"{view.title}, validated after {view.count}: {', '.join(metric_texts(values))}")

    on_test_end = on_validation_end
    on_predict_end = on_validation_end

    def _evaluation(self, trainer: Trainer) -> str:
        if trainer.sanity_checking:
            return "sanity check"
        return self._stage if self._stage in ("test", "predict") else "validation"


def _check_seconds(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigError(
            f"ProgressBar({name})",
            got=value,
            allowed="a number of seconds > 0",
            do="For no bar use Trainer(enable_progress_bar=False).",
        )


def _title(trainer: Trainer, epoch: int) -> str:
    return f"epoch {epoch}" if trainer.max_epochs is None else f"epoch {epoch}/{trainer.max_epochs}"


def _epoch_batches(trainer: Trainer, *, of_run: bool) -> int | None:
    """Batches of the present epoch; with `of_run` fewer where `max_steps` ends the run earlier."""
    policy, progress = trainer.policy, trainer.progress
    total = trainer.num_training_batches if policy is None else policy.epoch_batches
    if trainer.max_steps < 0 or not of_run:
        return total
    steps = max(trainer.max_steps - progress.step, 0)
    end = progress.batch - progress.window + steps * trainer.accumulate_grad_batches
    return end if total is None else min(end, total)


def _eval_batches(trainer: Trainer) -> int | None:
    """Batches of all evaluation loaders; None if one has no length, and for a sanity check, which sees only a few."""
    counts = [count for count in trainer.num_val_batches if count is not None]
    return None if trainer.sanity_checking or len(counts) < len(trainer.num_val_batches) else sum(counts)
