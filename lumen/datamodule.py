"""DataModule: the loaders of a task in one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumen.trainer import Trainer


class DataModule:
    """Subclass it and write the loaders that your runs need; each may return None.

    Order: `prepare_data` on one rank of each node, then on every rank `setup(stage)`, the loaders of the stage, and
    `teardown(stage)` at its end.

    Example:
        >>> class Digits(DataModule):
        ...     def train_dataloader(self):
        ...         return [([1.0], 0)]
        >>> Digits().train_dataloader()
        [([1.0], 0)]
        >>> Digits().val_dataloader() is None
        True
    """

    trainer: Trainer | None = None

    def prepare_data(self) -> None:
        """Downloads or writes what `setup` reads; runs on one rank of each node, so it must not set attributes."""

    def setup(self, stage: str) -> None:
        """Makes the datasets; `stage` is "fit", "validate", "test" or "predict"."""

    def train_dataloader(self) -> Any:
        """The training loader."""
        return None

    def val_dataloader(self) -> Any:
        """The validation loader, or a list of them."""
        return None

    def test_dataloader(self) -> Any:
        """The test loader, or a list of them."""
        return None

    def predict_dataloader(self) -> Any:
        """The loader to predict, or a list of them."""
        return None

    def teardown(self, stage: str) -> None:
        """After a stage, also when it failed."""

    def state_dict(self) -> Mapping[str, Any]:
        """What a checkpoint keeps of the data: plain data and arrays."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` gave."""
