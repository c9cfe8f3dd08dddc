"""Replicas: whether all ranks train one and the same model: its parameters at the start, its weights as it trains."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lumen.callbacks.base import Callback
from lumen.core.alike import Difference, first_difference
from lumen.core.cadence import Every, Unit
from lumen.errors import ConfigError, WorldError
from lumen.shell.weights import describe_parameters, fingerprints

if TYPE_CHECKING:
    from lumen.module import Module
    from lumen.trainer import Trainer

Gather = Callable[[str, Any], list[Any]]


def check_same_model(gather: Gather, module: Module) -> None:
    """Refuses models whose parameters differ over the ranks; as a collective that would be a hang or an abort.

    Args:
        gather: Exchanges a value under a name of its purpose.
        module: This rank's.

    Raises:
        WorldError: A parameter has another name, shape or dtype on a rank, or is frozen on some only.
    """
    found = _differing(gather, "setup", describe_parameters(module))
    if found is not None:
        raise WorldError(
            f"the module's parameter {found.name}",
            got=f"{found.first[1]} on rank {found.first[0]} and {found.second[1]} on rank {found.second[0]}",
            allowed="the same on every rank",
            do="Build the module from the same values on every rank, and freeze the same parameters.",
        )


def _differing(gather: Gather, kind: str, own: Mapping[str, str]) -> Difference | None:
    """The first difference; what is compared travels only where there is one."""
    digest = hashlib.sha256(repr(list(own.items())).encode()).hexdigest()
    if len(set(gather(kind, digest))) == 1:
        return None
    return first_difference(gather(f"{kind}: what differs", dict(own)))


class ReplicaCheck(Callback):
    """Compares the weights of all ranks from time to time: `Trainer(check_replicas=)`.

    Args:
        interval: Such as "1 epoch" or "500 steps".

    Raises:
        ConfigError: It is none of these.
    """

    def __init__(self, interval: Any) -> None:
        allowed = 'an interval in steps or whole epochs, such as "1 epoch" or "500 steps", or None'
        if not isinstance(interval, str):
            raise ConfigError("check_replicas", got=interval, allowed=allowed)
        every = Every.parse(interval, argument="check_replicas")
        if every.unit not in (Unit.EPOCH, Unit.STEP) or every.n != int(every.n):
            raise ConfigError("check_replicas", got=interval, allowed=allowed)
        self._unit, self._every = every.unit, int(every.n)

    def on_train_batch_end(self, trainer: Trainer, module: Module, *_: Any) -> None:
        """Where a window has closed."""
        run = trainer.run
        due = self._unit is Unit.STEP and run is not None and run.window == 0
        if due and trainer.global_step % self._every == 0:
            self._check(trainer, module)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """At an epoch's end."""
        if self._unit is Unit.EPOCH and (trainer.current_epoch + 1) % self._every == 0:
            self._check(trainer, module)

    def _check(self, trainer: Trainer, module: Module) -> None:
        if trainer.cluster is None or trainer.world_size == 1:
            return
        found = _differing(trainer.cluster.gather, "replicas", fingerprints(module))
        if found is not None:
            other, one = found.second[0], found.first[0]
            raise WorldError(
                f"the weights of {found.name}",
                got=f"other ones on rank {other} than on rank {one}, after step {trainer.global_step}",
                allowed="the same on every rank",
                do="Look for what changes weights or gradients on one rank only; "
                'FleetStrategy(gradient_sync="at_step") averages also what ranks use differently.',
            )
