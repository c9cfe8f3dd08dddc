"""Inputs: the data that an entry point was given, checked and opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from lumen.core.loading import LoaderPolicy
from lumen.core.world import World
from lumen.errors import ConfigError, DataError
from lumen.loop.runtime import Stage
from lumen.shell.loaders import each_loader, open_source, open_training, plan_for
from lumen.shell.ranks.cluster import Cluster
from lumen.shell.sources.base import Source

if TYPE_CHECKING:
    from lumen.datamodule import DataModule
    from lumen.trainer import Trainer

_WORDS = {Stage.FIT: "train", Stage.VALIDATE: "val", Stage.TEST: "test", Stage.PREDICT: "predict"}


@attrs.frozen
class Inputs:
    """The data of an entry point.

    Args:
        stage: Which entry point.
        main: The training loader, or for an evaluation its loaders.
        validation: The validation loaders of a fit.
        datamodule: Gives the loaders in their place.
    """

    stage: Stage
    main: Any
    validation: Any
    datamodule: DataModule | None

    @property
    def word(self) -> str:
        """The word in the names of arguments: "train", "val", "test" or "predict"."""
        return _WORDS[self.stage]

    def check(self, size: int, policy: LoaderPolicy) -> None:
        """Refuses what cannot be run on, before anything is connected or started.

        Args:
            size: Ranks that there will be.
            policy: What the run wants of its training loaders.

        Raises:
            ConfigError: Loaders and a datamodule.
            DataError: No loader, or one that cannot be used.
        """
        name = "train_dataloaders" if self.stage is Stage.FIT else "dataloaders"
        if self.datamodule is not None:
            if self.main is not None or self.validation is not None:
                raise ConfigError(
                    f"{name} with datamodule", got="both", allowed="one of them", do="The datamodule gives the loaders."
                )
            return
        if self.main is None:
            raise DataError(name, got="None", do=f"Pass a loader to trainer.{self.stage.value}, or a datamodule.")
        world = World(size=size, rank=0, local_size=size, local_rank=0, node=0)
        for loader, named, wanted in self._loaders(self.main, self.validation, policy):
            plan_for(loader, world, wanted, named)

    def _loaders(self, main: Any, validation: Any, policy: LoaderPolicy) -> Iterator[tuple[Any, str, LoaderPolicy]]:
        """Each loader, what errors call it, and what the run wants of it."""
        evaluate = attrs.evolve(policy, training=False, order=None)
        if self.stage is not Stage.FIT:
            yield from ((*one, evaluate) for one in each_loader(main, f"{self.stage.value} dataloaders"))
            return
        yield from ((*one, policy) for one in each_loader(main, "train_dataloaders"))
        if validation is not None:
            yield from ((*one, evaluate) for one in each_loader(validation, "val_dataloaders"))

    def prepare(self, trainer: Trainer, cluster: Cluster) -> None:
        """Lets the datamodule prepare its data, on one rank of each node, and make its datasets, on every rank."""
        data = self.datamodule
        if data is None:
            return
        data.trainer = trainer
        if cluster.world.local_rank == 0:
            data.prepare_data()
        cluster.wait("prepare_data")
        data.setup(self.stage.value)

    def open(self, world: World, policy: LoaderPolicy) -> tuple[Source | None, list[Source]]:
        """The training source of a fit, and the sources to evaluate.

        Args:
            world: The ranks.
            policy: What the run wants of its training loaders.

        Raises:
            DataError: A loader is missing or cannot be used.
            ConfigError: An order does not fit its dataset.
        """
        main, validation = (self.main, self.validation) if self.datamodule is None else self._made(self.datamodule)
        train = open_training(main, world, policy, "train_dataloaders") if self.stage is Stage.FIT else None
        evaluation = [
            open_source(loader, world, wanted, named)
            for loader, named, wanted in self._loaders(main, validation, policy)
            if not wanted.training
        ]
        return train, evaluation

    def _made(self, data: DataModule) -> tuple[Any, Any]:
        main = getattr(data, f"{self.word}_dataloader")()
        if main is None:
            raise DataError(
                f"{type(data).__name__}.{self.word}_dataloader", got="None", do=f"trainer.{self.stage.value} needs it."
            )
        return main, data.val_dataloader() if self.stage is Stage.FIT else None
