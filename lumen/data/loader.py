"""DataLoader and BatchSampler: Paddle's, with an order of lumen's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lumen.core.orders.base import Order, check_count
from lumen.core.sampling import Cursor, EpochPlan, SamplerConfig, Tail, plan_epoch
from lumen.core.world import World
from lumen.errors import ConfigError
from lumen.shell.paddle_shim import paddle


class BatchSampler(paddle.io.BatchSampler):
    """The batches of an order, for `paddle.io.DataLoader(dataset, batch_sampler=...)`.

    A `Trainer` deals the order to the ranks, and resumes in it. Iterated by itself it gives the batches of one process,
    in the epoch that `set_epoch` chose; iterating changes nothing.

    Args:
        dataset: The dataset that is sampled.
        sampler: The order.
        batch_size: Samples per rank and batch, >= 1; not with `Bucketed(max_tokens=...)`.
        drop_last: Leave out a last batch that is not full, in training.
        seed: Of the order where no Trainer gives one, >= 0.

    Raises:
        ConfigError: The order is none, or a number is out of range.

    Example:
        >>> from lumen.data import Sorted
        >>> list(BatchSampler(["ccc", "a", "bb"], Sorted(len), batch_size=2))
        [[1, 2], [0]]
    """

    def __init__(  # paddle's own wants a dataset or a sampler of its own
        self, dataset: Any, sampler: Order, batch_size: int = 1, *, drop_last: bool = False, seed: int = 0
    ) -> None:
        if not isinstance(sampler, Order):
            raise ConfigError("BatchSampler(sampler)", got=sampler, allowed="an order such as lumen.data.Shuffled()")
        check_count(batch_size, "BatchSampler(batch_size)", 1)
        check_count(seed, "BatchSampler(seed)", 0)
        self.data_source = dataset
        self.order = sampler
        self.batch_size = batch_size
        self.drop_last = bool(drop_last)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that an iteration gives.

        Args:
            epoch: The epoch, >= 0.
        """
        self.epoch = epoch

    def _plan(self) -> EpochPlan:
        self.order = self.order.bind(self.data_source)  # keys are read once
        config = SamplerConfig(
            length=len(self.data_source),
            batch_size=self.batch_size,
            order=self.order,
            seed=self.seed,
            tail=Tail.DROP if self.drop_last else Tail.KEEP,
        )
        return plan_epoch(config, World.single(), Cursor(epoch=self.epoch))

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._plan())

    def __len__(self) -> int:
        return self._plan().batches


class DataLoader(paddle.io.DataLoader):
    """`paddle.io.DataLoader` with an argument `sampler`.

    Args:
        dataset: The dataset.
        batch_size: Samples per rank and batch; leave it out with `Bucketed(max_tokens=...)`.
        sampler: An order such as `lumen.data.Bucketed("length")`, or a sampler of paddle's or your own; None: as
            `shuffle` says.
        shuffle: Another order in each epoch.
        drop_last: Leave out a last batch that is not full.
        settings: All other arguments of `paddle.io.DataLoader`.

    Raises:
        ConfigError: `sampler` and `shuffle`, or a sampler without a batch size.

    Example:
        >>> from lumen.data import Sorted
        >>> loader = DataLoader(["ccc", "a", "bb"], batch_size=2, sampler=Sorted(len))
        >>> list(loader.batch_sampler)
        [[1, 2], [0]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        sampler: Order | Iterable[int] | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        **settings: Any,
    ) -> None:
        if sampler is None:
            super().__init__(dataset, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last, **settings)
            return
        if shuffle:
            raise ConfigError("DataLoader(shuffle) with sampler", got="both", allowed="one of them")
        if batch_size is None:
            raise ConfigError("DataLoader(batch_size) with sampler", got=None, allowed="an int >= 1")
        batches: Any = (
            BatchSampler(dataset, sampler, batch_size, drop_last=drop_last)
            if isinstance(sampler, Order)
            else paddle.io.BatchSampler(sampler=sampler, batch_size=batch_size, drop_last=drop_last)
        )
        super().__init__(dataset, batch_sampler=batches, **settings)
