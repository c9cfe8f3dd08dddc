"""Elsewhere: an entry point in a prompt, a notebook or a test runner runs on ranks that are new processes."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from lumen.core.policy import Policy
from lumen.core.progress import TrainState
from lumen.core.world import World
from lumen.loop.run import Run
from lumen.loop.runtime import Runtime, Stage
from lumen.shell.paddle_shim import paddle
from lumen.shell.ranks.command import other_runner
from lumen.shell.ranks.spawned import packed, spawn
from lumen.shell.ranks.travel import pack, unpack
from lumen.shell.tensors import Stored, from_numpy, to_numpy
from lumen.trainer.ranks import starts_ranks

if TYPE_CHECKING:
    from lumen.trainer import Trainer

_FIELDS = ("seed", "ckpt_path", "log_dir", "num_training_batches", "num_val_batches")
_said: set[str] = set()
_STAYS = "lumen: this cannot travel"


def runs_elsewhere(trainer: Trainer) -> bool:
    """Whether this process starts the ranks, and cannot do so by its command line."""
    return bool(other_runner()) and starts_ranks(trainer)


def run_elsewhere(trainer: Trainer, entry: str, *given: Any) -> Any:
    """Runs an entry point of the Trainer on ranks that are new processes.

    What the run changed comes back into this process: weights and buffers, attributes of the module and of callbacks
    and loggers, counters, metrics, the states of Python's and numpy's generators.

    Args:
        trainer: The trainer.
        entry: The name of the entry point.
        given: All its arguments, in order.

    Returns:
        What it returns on rank 0.

    Raises:
        LaunchError: What is given cannot travel to another process.
        Exception: What the first rank to fail raised; nothing was changed here then.
    """
    runner = other_runner()
    if runner not in _said:
        _said.add(runner)
        sys.stderr.write(f"lumen: in {runner}, ranks are new processes: the module travels there and back\n")
    task = _Task(trainer, entry, given)
    data = spawn(packed(task, task.parts()), trainer.device_plan, trainer.supervision, trainer.stop_signals)
    brought = unpack(data, _known(trainer, task.module()))
    _take_back(brought, trainer, task.module())
    return brought.result


@attrs.frozen
class _Brought:
    """What comes back.

    Args:
        result: What the entry point returned.
        tensors: The module's parameters and buffers, in order.
        attributes: For each object that is known on both sides, its own attributes.
        fields: The Trainer's.
        ended: The run as it ended.
        random: The states of Python's and numpy's generators.
    """

    result: Any
    tensors: list[Stored]
    attributes: list[Mapping[str, Any]]
    fields: Mapping[str, Any]
    ended: _Ended | None
    random: tuple[Any, Any]


@attrs.frozen
class _Ended:
    """A run that has ended: what is read of it."""

    policy: Policy
    stage: Stage
    state: TrainState
    reason: str
    eval_loaders: int
    callback: dict[str, float]
    logged: dict[str, float]
    evaluated: dict[str, float]
    shown: tuple[str, ...]


class _Task:
    """The entry point with what it was given, to be called on each rank."""

    def __init__(self, trainer: Trainer, entry: str, given: Sequence[Any]) -> None:
        self._trainer = trainer
        self._entry = entry
        self._given = given
        self._random = _generators()
        self._run = _ended(trainer.run)

    def module(self) -> Any:
        """The module it is for."""
        return self._given[0] if self._given[0] is not None else self._trainer.module

    def parts(self) -> dict[str, Any]:
        """What travels, by name."""
        names = list(inspect.signature(getattr(type(self._trainer), self._entry)).parameters)[1:]
        given = dict(zip(names, self._given, strict=True))
        callbacks = {f"the callback {type(one).__name__}": one for one in self._trainer.callbacks}
        return {**given, **callbacks, "the Trainer": self._trainer}

    def __call__(self) -> bytes:
        """Runs on a rank."""
        trainer, module = self._trainer, self.module()
        _set_generators(self._random)
        trainer.run = _revived(self._run)
        result = getattr(trainer, self._entry)(*self._given)
        known = _known(trainer, module)
        brought = _Brought(
            result=result,
            tensors=[to_numpy(tensor) for tensor in _tensors(module)],
            attributes=[_attributes(one, known) for one in known[1:]],
            fields={name: getattr(trainer, name) for name in _FIELDS},
            ended=_ended(trainer.run),
            random=_generators(),
        )
        return pack(brought, known)


def _known(trainer: Trainer, module: Any) -> list[Any]:
    """The objects that there are on both sides, in one order."""
    layers = module.sublayers(include_self=True) if _is_layer(module) else [module]
    return [trainer, *trainer.callbacks, *trainer.loggers, *layers]


def _tensors(module: Any) -> list[Any]:
    return [*module.parameters(), *module.buffers()]


def _attributes(known: Any, all_known: Sequence[Any]) -> dict[str, Any]:
    """The attributes of an object; of a layer those that are the user's own: no tensors, layers and Paddle's names."""
    own = {*vars(paddle.nn.Layer()), "_trainer", "_log", "forward"} if _is_layer(known) else ()
    found: dict[str, Any] = {}
    for name, value in getattr(known, "__dict__", {}).items():
        if name not in own:
            try:
                pack(value, all_known)
                found[name] = value
            except Exception:  # noqa: BLE001 - an open file, a lock: it stays what it was
                found[name] = _STAYS
    return found


def _generators() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that users and Paddle draw from


def _set_generators(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002


def _is_layer(value: Any) -> bool:
    return isinstance(value, paddle.nn.Layer)


def _ended(run: Run | None) -> _Ended | None:
    if run is None:
        return None
    book = run.logbook
    return _Ended(
        run.policy,
        run.stage,
        run.state,
        run.reason,
        run.eval_loaders,
        dict(book.callback),
        dict(book.logged),
        dict(book.evaluated),
        book.shown,
    )


def _take_back(brought: _Brought, trainer: Trainer, module: Any) -> None:
    for tensor, stored in zip(_tensors(module), brought.tensors, strict=True):
        tensor.set_value(from_numpy(stored))
    for one, attributes in zip(_known(trainer, module)[1:], brought.attributes, strict=True):
        for name, value in attributes.items():
            if value == _STAYS:
                sys.stderr.write(f"lumen: what the run made of {type(one).__name__}.{name} cannot travel back\n")
            else:
                object.__setattr__(one, name, value)
    for name, value in brought.fields.items():
        setattr(trainer, name, value)
    _set_generators(brought.random)
    trainer.module, module._trainer = module, trainer
    trainer.run = _revived(brought.ended)


def _revived(ended: _Ended | None) -> Run | None:
    if ended is None:
        return None
    run = Run(cast("Runtime", _NoRuntime()), ended.policy, {}, ended.stage, ended.state)
    run.reason, run.eval_loaders = ended.reason, ended.eval_loaders
    book = run.logbook
    book.callback, book.logged, book.evaluated = ended.callback, ended.logged, ended.evaluated
    book.show(ended.shown)
    return run


class _NoRuntime:
    """That of a run in other processes, which are no more."""

    world = World.single()
    hooks: Any = None
    held = None

    def clock(self) -> float:
        """The time stands still."""
        return 0.0

    def read(self, _: Sequence[Any]) -> list[float]:
        """There is nothing to read any more."""
        return []
