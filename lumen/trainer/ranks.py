"""Ranks: how a run is connected with the other ranks, and what they, and its hooks, learn when it fails."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from lumen.core.faults import Position
from lumen.core.slurm import slurm_environment
from lumen.core.world import World, world_from_env
from lumen.errors import ModuleError, WorldError
from lumen.loop.run import Run
from lumen.loop.runtime import Stage
from lumen.shell.ranks import supervision
from lumen.shell.ranks.cluster import Cluster, check_launchable, connect, initialized_outside
from lumen.shell.ranks.collectives import no_collectives
from lumen.shell.ranks.device import make_deterministic
from lumen.shell.ranks.supervisor import launch

if TYPE_CHECKING:
    from lumen.trainer import Trainer

_log = logging.getLogger("lumen")


def connect_ranks(trainer: Trainer, *, wrapped: bool) -> Cluster:
    """The ranks that the trainer asks for; where nothing has started them yet, this process becomes their supervisor.

    Args:
        trainer: The trainer.
        wrapped: Whether the module is in a `DataParallel` of the user's.

    Raises:
        ModuleError: It is, on several ranks, and `fleet.init` was not called.
        WorldError: The environment, the devices, or an earlier Trainer of this process say otherwise.
        SystemExit: At the end of a supervisor.
    """
    plan, watched = trainer.device_plan, trainer.supervision
    os.environ.update(slurm_environment(os.environ))  # where Paddle looks for them, and nowhere else
    world = world_from_env(os.environ)
    if world.size == 1 and trainer.arguments.num_nodes > 1:
        raise WorldError(
            "num_nodes",
            got=trainer.arguments.num_nodes,
            allowed="1 in a program that is started once",
            do="Start it on each node: python -m paddle.distributed.launch --nnodes ... --master ... train.py",
        )
    several = world.size > 1 or len(plan.ids) > 1
    if wrapped and several and not initialized_outside():
        raise ModuleError(
            "module",
            got="a paddle.DataParallel, before fleet.init",
            allowed="the lumen.Module in it",
            do="Leave wrapping to lumen, or start with paddle.distributed.launch and call fleet.init before wrapping.",
        )
    if starts_ranks(trainer):
        check_launchable(plan)
        launch(plan, watched, trainer.stop_signals)
    if watched.max_restarts and not supervision.is_supervised():
        _log.warning(
            "max_restarts=%d has no effect under another launcher: let that one start the job again, with "
            'ckpt_path="auto".',
            watched.max_restarts,
        )
    if trainer.arguments.deterministic:
        make_deterministic()
    return connect(plan, world, trainer.strategy)


def starts_ranks(trainer: Trainer) -> bool:
    """Whether the ranks are still to be started, by this process."""
    wanted = len(trainer.device_plan.ids) > 1 or trainer.supervision.max_restarts > 0
    alone = trainer.arguments.num_nodes == 1 and not supervision.is_supervised()
    return wanted and alone and _started_world().size == 1


def planned_world(trainer: Trainer) -> World:
    """The ranks as they will be: this process's place among them, rank 0 where they are still to be started."""
    size = len(trainer.device_plan.ids)
    if starts_ranks(trainer):
        return World(size=size, rank=0, local_size=size, local_rank=0, node=0)
    return _started_world()


def _started_world() -> World:
    """The ranks that another program started."""
    return world_from_env({**os.environ, **slurm_environment(os.environ)})


class Part:
    """What this rank's run has to do with those of the others.

    Args:
        trainer: The trainer.
        stage: Which entry point.

    Attributes:
        run: The run, once there is one.
    """

    def __init__(self, trainer: Trainer, stage: Stage) -> None:
        self._trainer = trainer
        self._stage = stage
        self._cluster: Cluster | None = None
        self.run: Run | None = None

    def enter(self, cluster: Cluster) -> None:
        """The run begins: see `Cluster.enter`."""
        self._cluster = cluster
        cluster.fits += self._stage is Stage.FIT
        cluster.enter(self._trainer.supervision.hang_seconds, self._position, self._beats, self._rescue)

    def resume_path(self) -> str | None:
        """Where this fit had got to before all ranks were started again; None: they were not."""
        if self._cluster is None or self._stage is not Stage.FIT:
            return None
        return supervision.resume_path(self._cluster.fits)

    def fail(self, error: BaseException) -> None:
        """Tells the other ranks and the hooks; an error of a hook is logged and hides nothing."""
        member = self._cluster.member if self._cluster is not None else None
        if self.run is not None:
            self.run.annotate(error)
        if member is not None:
            member.fail(error, self._position())
        self._tell_hooks(error)
        if member is not None:
            member.settle()

    def finalizers(self, status: str) -> list[Callable[[], object]]:
        """What closes the loggers."""
        if self.run is None or not self._trainer.is_global_zero:
            return []
        return [functools.partial(logger.finalize, status) for logger in self._trainer.loggers]

    def leave(self) -> None:
        """The run is over, and all of it is closed."""
        if self._cluster is not None and self._cluster.member is not None:
            self._cluster.member.leave()

    def _tell_hooks(self, error: BaseException) -> None:
        with no_collectives():
            for call in self.run.hooks["on_exception"] if self.run is not None else ():
                attempt(call, error)

    def _rescue(self, error: BaseException) -> None:
        """What can be done of a failed run's end in another thread, while the main one is in a collective."""
        self._tell_hooks(error)
        for finalize in self.finalizers("failed"):
            attempt(finalize)

    def _position(self) -> Position:
        return self.run.position() if self.run is not None else Position(stage=self._stage.value)

    def _beats(self) -> int:
        return self.run.logbook.begun if self.run is not None else -1


def attempt(call: Callable[..., object], *args: object) -> Exception | None:
    """Calls, and gives the error back instead of raising it."""
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001 - a user's hook may raise anything
        _log.exception("An error while a run was closing")
        return error
    return None
