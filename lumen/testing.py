"""Tools to test callbacks, loops and policies without a device: a runtime that records, and ranks as threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from lumen.callbacks.base import HOOKS
from lumen.core.metrics import Reduce, result, total
from lumen.core.planning import StepPlan
from lumen.core.policy import Policy
from lumen.core.progress import Progress, TrainState
from lumen.core.requests import check_kinds
from lumen.core.world import World
from lumen.errors import DataError, WorldError
from lumen.loop.fitting import fit
from lumen.loop.run import Run
from lumen.loop.runtime import Fetched, Hooks, Stage

T = TypeVar("T")


class Group:
    """Ranks as threads of one process: collectives with a deadline, so that ranks that disagree fail, not hang.

    Args:
        size: Number of ranks, >= 1.
        timeout: Seconds that a rank waits for the others.
    """

    def __init__(self, size: int, *, timeout: float = 5.0) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=timeout)
        self._slots: list[Any] = [None] * size

    def gather(self, rank: int, kind: str, value: Any) -> list[Any]:
        """The values of all ranks.

        Raises:
            WorldError: A rank did not come in time, or came with another kind of collective.
        """
        self._slots[rank] = (kind, value)
        self._meet(rank, kind)
        slots = list(self._slots)
        self._meet(rank, kind)  # nobody may write its next value before all have read these
        check_kinds({rank: kind for rank, (kind, _) in enumerate(slots)})
        return [value for _, value in slots]

    def _meet(self, rank: int, kind: str) -> None:
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise WorldError(f"rank {rank}", got=f"no answer from the other ranks in {kind!r}") from None

    def abort(self) -> None:
        """Ends the waiting of all ranks: one of them failed."""
        self._barrier.abort()


class FakeRuntime:
    """A runtime without a device: batches are any values, "training" counts, and every effect is recorded.

    Args:
        epochs: What an epoch's batches are: a list for all epochs, or a function of the epoch.
        world: The rank.
        group: The other ranks; None on one rank.
        loss: The outputs of a training batch, from the batch.
        refuse: Steps (from 1) that the grad scaler refuses.
        evaluation: The batches of each evaluation loader.
        tick: Seconds that each reading of the clock adds.

    Attributes:
        calls: Every effect, in order: its name and what matters of its arguments.
        counts: How often each costly effect happened: "read", "gather", "forward", "step", "schedule".

    Example:
        >>> runtime = FakeRuntime([1, 2, 3])
        >>> run_fit(runtime, Policy(max_epochs=2)).progress.step
        6
        >>> runtime.counts["read"], runtime.counts["gather"]
        (0, 4)
    """

    def __init__(
        self,
        epochs: Sequence[Any] | Callable[[int], Sequence[Any]],
        *,
        world: World | None = None,
        group: Group | None = None,
        loss: Callable[[Any], Any] = lambda batch: batch,
        refuse: Sequence[int] = (),
        evaluation: Sequence[Sequence[Any]] = (),
        tick: float = 0.0,
    ) -> None:
        self.world = world or World.single()
        self.hooks: Hooks = dict.fromkeys(HOOKS, ())
        self.calls: list[tuple[Any, ...]] = []
        self.counts = {"read": 0, "gather": 0, "forward": 0, "step": 0, "schedule": 0}
        self.evaluation = evaluation
        self._epochs: Callable[[int], Sequence[Any]] = epochs if callable(epochs) else lambda _: epochs
        self._group = group
        self._loss = loss
        self._refuse = frozenset(refuse)
        self._now = 0.0
        self._tick = tick

    def clock(self) -> float:
        """Seconds since the runtime was made, as `tick` says."""
        self._now += self._tick
        return self._now

    def train_length(self, progress: Progress) -> int | None:
        """Batches in the epoch."""
        return len(self._epochs(progress.epoch))

    def train_batches(self, progress: Progress) -> Generator[Fetched, None, None]:
        """The epoch's batches from the cursor on; each counts one sample a rank."""
        batches = self._epochs(progress.epoch)
        self.calls.append(("epoch", progress.epoch, progress.batch))
        for index in range(progress.batch, len(batches)):
            yield batches[index], self.world.size, index == len(batches) - 1

    def eval_batches(self, stage: Stage, loader: int) -> Iterator[Fetched]:
        """The batches of an evaluation loader."""
        batches = self.evaluation[loader]
        for index, batch in enumerate(batches):
            yield batch, self.world.size, index == len(batches) - 1

    def forward_backward(self, batch: Any, batch_idx: int, plan: StepPlan) -> Any:
        """Records the batch and its weight."""
        self.counts["forward"] += 1
        self.calls.append(("forward", batch, plan.loss_weight, plan.sync_grads))
        outputs = self._loss(batch)
        for call in self.hooks["on_before_backward"]:
            call(outputs)
        for call in self.hooks["on_after_backward"]:
            call()
        return outputs

    def optimizer_step(self, plan: StepPlan) -> bool:
        """Records the step; refuses those it was told to."""
        self.counts["step"] += 1
        self.calls.append(("step", plan.grad_rescale))
        for hook in ("on_before_optimizer_step", "on_before_zero_grad"):
            for call in self.hooks[hook]:
                call(None)
        return self.counts["step"] not in self._refuse

    def scheduler_step(self) -> None:
        """Records the move."""
        self.counts["schedule"] += 1
        self.calls.append(("schedule",))

    def eval_begin(self, stage: Stage) -> None:
        """Records it."""
        self.calls.append(("eval_begin", stage.value))

    def eval_step(self, stage: Stage, batch: Any, batch_idx: int, loader: int) -> Any:
        """Records the batch."""
        self.calls.append(("eval", batch, batch_idx, loader))
        return self._loss(batch)

    def eval_end(self, stage: Stage) -> None:
        """Records it."""
        self.calls.append(("eval_end", stage.value))

    def gather(self, kind: str, value: Any) -> list[Any]:
        """The values of all ranks."""
        self.counts["gather"] += 1
        return [value] if self._group is None else self._group.gather(self.world.rank, kind, value)

    def read(self, values: Sequence[Any]) -> list[float]:
        """The values as floats; counts as a read if there are any."""
        self.counts["read"] += bool(values)
        return [float(value) for value in values]

    def fold(self, reduce: Reduce, values: Sequence[Any], weights: Sequence[float]) -> Any:
        """Many values as one."""
        return result(total(reduce, [float(value) for value in values], weights))

    def held(self, value: Any) -> Any:
        """The value."""
        return value

    def check_scalar(self, name: str, value: Any) -> None:
        """Refuses what is no number."""
        if not isinstance(value, (int, float)):
            raise DataError(f"self.log({name!r})", got=value, allowed="a number")

    def batch_size(self, batch: Any) -> int:
        """The batch's length, or 1."""
        return len(batch) if hasattr(batch, "__len__") else 1


def run_fit(
    runtime: FakeRuntime,
    policy: Policy,
    *,
    hooks: Mapping[str, Sequence[Callable[..., Any]]] | None = None,
    state: TrainState | None = None,
    prepare: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Runs the training loop over a fake runtime.

    Args:
        runtime: The runtime.
        policy: What happens when.
        hooks: What to call at each hook, by name.
        state: Where to go on from.
        prepare: Called with the run before it starts.

    Returns:
        The run, as it ended.
    """
    table = {hook: tuple((hooks or {}).get(hook, ())) for hook in HOOKS}
    run = Run(runtime, policy, table, Stage.FIT, state or TrainState())
    run.eval_loaders = len(runtime.evaluation)
    prepare(run)
    fit(run)
    return run


def run_ranks(size: int, work: Callable[[World, Group], T], *, timeout: float = 5.0) -> list[T]:
    """Runs a function once per rank, each in a thread, and returns what they returned, in order.

    Args:
        size: Number of ranks, >= 1.
        work: Takes the rank's world and the group; give both to a `FakeRuntime`.
        timeout: Seconds that a rank waits for the others in a collective.

    Raises:
        BaseException: The error of the rank that failed first.

    Example:
        >>> run_ranks(2, lambda world, group: sum(group.gather(world.rank, "sum", world.rank + 1)))
        [3, 3]
    """
    group = Group(size, timeout=timeout)
    results: list[Any] = [None] * size
    errors: list[tuple[float, BaseException]] = []

    def body(rank: int) -> None:
        try:
            results[rank] = work(World(size=size, rank=rank, local_size=size, local_rank=rank, node=0), group)
        except BaseException as error:
            errors.append((time.monotonic(), error))
            group.abort()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise min(errors, key=lambda pair: pair[0])[1]
    return results
