"""ModelCheckpoint: which states of a run are kept, and under which names."""

from __future__ import annotations

import itertools
import os
import string
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lumen.callbacks.base import Callback
from lumen.core.cadence import Every, Unit
from lumen.core.retention import Kept, TopK, check_mode, check_monitor, consider
from lumen.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer import Trainer

LAST = "last"
_COUNTERS = ("epoch", "step", "batch", "samples")


class ModelCheckpoint(Callback):
    """Saves checkpoints: the best by a monitored value, and the last.

    It acts after the validation of the same step, with every state moved, so that a score belongs to the weights saved
    with it. Where nothing else is said it acts after each validation, or at each epoch's end if there is none. The
    folder `last` is the newest state that a run can go on from; it is written at a stop too.

    Args:
        dirpath: Folder of the checkpoints; default: `checkpoints` in the log folder.
        filename: Template of a checkpoint's name, with epoch, step, batch, samples and logged values as fields, such as
            "{epoch}-{val_acc:.3f}"; default: "{epoch}-{step}", with the monitored value if there is one.
        monitor: Name of the logged value that decides; None: the newest is the best.
        mode: "min" or "max": whether small or large values are good.
        save_top_k: How many of the best to keep; -1: all, 0: none.
        save_last: Keep the newest state in `last` too.
        every_n_train_steps: Act every so many optimizer steps.
        every_n_epochs: Act every so many epochs.
        auto_insert_metric_name: Write "epoch=3" rather than "3" into a name.

    Raises:
        ConfigError: An argument is wrong; during the run: the monitored value is not logged.

    Attributes:
        best_model_path: The best checkpoint; "" before the first.
        best_model_score: Its score; None without a monitor.
        last_model_path: The newest checkpoint; "" before the first.

    Example:
        >>> ModelCheckpoint(monitor="val_acc", mode="maximum")
        Traceback (most recent call last):
        lumen.errors.ConfigError: mode: got 'maximum'; allowed: 'min' or 'max'. Did you mean 'max'?
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        *,
        monitor: str | None = None,
        mode: str = "min",
        save_top_k: int = 1,
        save_last: bool = True,
        every_n_train_steps: int | None = None,
        every_n_epochs: int | None = None,
        auto_insert_metric_name: bool = True,
    ) -> None:
        for name, value, least in (
            ("save_top_k", save_top_k, -1),
            ("every_n_train_steps", every_n_train_steps, 1),
            ("every_n_epochs", every_n_epochs, 1),
        ):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(name, got=value, allowed=f"an int >= {least}")
        self.dirpath = Path(dirpath).absolute() if dirpath is not None else None
        self.monitor = monitor
        self.save_last = save_last
        self.every_n_train_steps = every_n_train_steps
        self.every_n_epochs = every_n_epochs
        self.auto_insert_metric_name = auto_insert_metric_name
        self.top = TopK(k=save_top_k, mode=check_mode(mode))
        self._named = filename is not None or monitor is not None or save_top_k != 1 or not save_last
        default = "{epoch}-{step}" if monitor is None else "{epoch}-{step}-{" + monitor + ":.4f}"
        self.filename = filename if filename is not None else default
        self._fields = _fields(self.filename)
        self._has_validation = False
        self._folder: Path | None = self.dirpath
        self._last = ""
        self._saved_step = -1

    @property
    def state_key(self) -> str:
        """Class and what decides, so that two with other aims in one run do not share a state."""
        aim = f"monitor={self.monitor},mode={self.top.mode},top={self.top.k},filename={self.filename}"
        return f"ModelCheckpoint({aim},steps={self.every_n_train_steps},epochs={self.every_n_epochs})"

    @property
    def best_model_path(self) -> str:
        """The best checkpoint."""
        if not self._named:
            return self.last_model_path
        best = self.top.best
        return str(self._folder / best.name) if best is not None and self._folder is not None else ""

    @property
    def best_model_score(self) -> float | None:
        """The best checkpoint's score."""
        return self.top.best.score if self.top.best is not None else None

    @property
    def best_k_models(self) -> dict[str, float | None]:
        """The checkpoints that are kept, the best first, with their scores."""
        folder = self._folder
        return {str(folder / kept.name): kept.score for kept in self.top.kept} if folder is not None else {}

    @property
    def last_model_path(self) -> str:
        """The newest checkpoint."""
        return str(self._folder / self._last) if self._last and self._folder is not None else ""

    def policy_rules(self, has_validation: bool) -> tuple[tuple[Every, ...], bool]:
        """When the run must ask: intervals, and whether after each validation."""
        self._has_validation = has_validation
        rules = []
        if self.every_n_train_steps is not None:
            rules.append(Every(self.every_n_train_steps, Unit.STEP))
        if self.every_n_epochs is not None:
            rules.append(Every(self.every_n_epochs, Unit.EPOCH))
        if rules or has_validation:
            return tuple(rules), not rules
        return (Every(1, Unit.EPOCH),), False

    def on_load_checkpoint(self, trainer: Trainer, module: Module, checkpoint: Mapping[str, Any]) -> None:
        """Chooses the folder, so that `load_state_dict` can look into it."""
        self._choose_folder(trainer)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Chooses the folder."""
        self._choose_folder(trainer)

    def _choose_folder(self, trainer: Trainer) -> None:
        self._saved_step = -1
        others = [c for c in trainer.callbacks if isinstance(c, ModelCheckpoint)]
        if self.dirpath is None:
            number = [c for c in others if c.dirpath is None].index(self)
            root = Path(trainer.log_dir or trainer.default_root_dir)
            self._folder = root / ("checkpoints" if number == 0 else f"checkpoints_{number}")
        elif any(c is not self and c.dirpath == self.dirpath for c in others):
            raise ConfigError("dirpath", got=str(self.dirpath), do="Give each ModelCheckpoint a folder of its own.")

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Refuses a monitor that can only be a misspelt name of a validation value."""
        if self.monitor is not None:
            check_monitor("ModelCheckpoint(monitor)", self.monitor, trainer.evaluated_metrics)

    def on_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Saves what is due."""
        due = self._due(trainer)
        step = trainer.progress.step
        ending = trainer.stop_reason is not None
        try:
            if due and self._named and step != self._saved_step:
                self._save_best(trainer, step)
        finally:  # a misspelt monitor loses nothing that was trained
            if self.save_last and self._folder is not None and (due or ending or trainer.checkpoint_requested):
                self._last = LAST
                trainer.save_checkpoint(self._folder / LAST)
            self._saved_step = step

    def _due(self, trainer: Trainer) -> bool:
        """Whether this callback's own rule fired, and its score is that of the present weights."""
        plan, progress = trainer.plan, trainer.progress
        if plan is None:
            return False
        rules, on_validation = self.policy_rules(self._has_validation)
        fired = on_validation and plan.validate
        for rule in rules:
            if rule.unit is Unit.STEP:
                fired = fired or rule.fires(progress.step - 1, progress.step)
            else:
                fired = fired or (plan.end_epoch and rule.fires(progress.epoch - 1, progress.epoch))
        return fired and (self.monitor is None or trainer.is_fresh(self.monitor))

    def _save_best(self, trainer: Trainer, step: int) -> None:
        metrics = trainer.callback_metrics
        score = self._lookup(metrics, self.monitor) if self.monitor is not None else None
        if self._folder is None:
            return
        base = self._name(trainer, metrics)
        candidate = Kept(name=self._free(base), score=score, step=step)
        decision = consider(self.top, candidate)
        if not decision.save:
            return
        after = decision.after
        name = base if base in decision.drop else candidate.name  # the one that is displaced has left its name
        kept = tuple(attrs.evolve(one, name=name) if one is candidate else one for one in after.kept)
        self.top = attrs.evolve(after, kept=kept)
        if not self.save_last:
            self._last = name
        trainer.save_checkpoint(self._folder / name)
        for gone in decision.drop:
            if gone != name:
                trainer.remove_checkpoint(self._folder / gone)

    def _free(self, base: str) -> str:
        """The name, with a version behind it if a checkpoint of this run or of an earlier one has it."""
        taken = {kept.name for kept in self.top.kept}
        names = itertools.chain([base], (f"{base}-v{version}" for version in itertools.count(1)))
        return next(
            n for n in names if n not in taken and not (self._folder is not None and (self._folder / n).exists())
        )

    def _name(self, trainer: Trainer, metrics: Mapping[str, float]) -> str:
        counters = {name: getattr(trainer.progress, name) for name in _COUNTERS}
        parts = []
        for text, field, spec in self._fields:
            parts.append(text)
            if field:
                value = counters[field] if field in counters else self._lookup(metrics, field)
                shown = format(value, spec)
                parts.append(f"{field}={shown}" if self.auto_insert_metric_name else shown)
        return "".join(parts).replace("/", "_")

    def _lookup(self, metrics: Mapping[str, float], name: str) -> float:
        if name not in metrics:
            raise ConfigError(
                "ModelCheckpoint(monitor)" if name == self.monitor else "ModelCheckpoint(filename)",
                got=name,
                allowed="a value logged with self.log",
                do=did_you_mean(name, metrics) if metrics else "Nothing was logged: log it in validation_step.",
            )
        return metrics[name]

    def state_dict(self) -> Mapping[str, Any]:
        """Names, scores and steps of the checkpoints that are kept: no paths, so that the folder may be moved."""
        return {"kept": [attrs.asdict(kept) for kept in self.top.kept], "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the history back; checkpoints that are not in the folder any more are forgotten."""
        kept = [Kept(**one) for one in state["kept"]]
        folder = self._folder
        self.top = attrs.evolve(
            self.top, kept=tuple(one for one in kept if folder is not None and (folder / one.name).is_dir())
        )
        self._last = state["last"]


def _fields(template: str) -> list[tuple[str, str, str]]:
    """The texts, field names and formats of a template; every field is checked to be formattable."""
    try:
        parsed = [(text, field or "", spec or "") for text, field, spec, _ in string.Formatter().parse(template)]
        for _, field, spec in parsed:
            format(1 if field in _COUNTERS else 1.0, spec)
    except ValueError as error:
        raise ConfigError(
            "filename", got=template, allowed='a template such as "{epoch}-{val_acc:.3f}"', do=f"It has: {error}."
        ) from None
    if template in ("", LAST) or template.startswith("."):
        raise ConfigError("filename", got=template, allowed=f"a name that is not empty, hidden or {LAST!r}")
    return parsed
