"""Runtime: what the loops need from the world outside."""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from lumen.core.metrics import Reduce
from lumen.core.planning import StepPlan
from lumen.core.progress import Progress
from lumen.core.world import World


class Stage(enum.Enum):
    """Which of the loops runs."""

    FIT = "fit"
    SANITY = "sanity_check"
    VALIDATE = "validate"
    TEST = "test"
    PREDICT = "predict"

    @property
    def hook(self) -> str:
        """The word that the stage's hooks carry: ``on_<hook>_batch_end``."""
        return {"fit": "train", "sanity_check": "validation", "validate": "validation"}.get(self.value, self.value)


Hooks = Mapping[str, tuple[Callable[..., Any], ...]]
"""Who is called at each hook, as `dispatch_table` makes it."""

Fetched = tuple[Any, int, bool]
"""A batch on the device, its samples over all ranks (0: not known), and whether it is the last."""


class Runtime(Protocol):
    """The effects that the loops order. `PaddleRuntime` carries them out; `lumen.testing.FakeRuntime` records them.

    Attributes:
        world: The ranks.
        hooks: Who is called at each hook; the runtime calls those inside a step: around backward and the optimizer.
    """

    world: World
    hooks: Hooks

    def clock(self) -> float:
        """Seconds since some fixed moment."""

    def train_length(self, progress: Progress) -> int | None:
        """Batches of the present epoch, those behind the cursor included; None: not known."""

    def train_batches(self, progress: Progress) -> Generator[Fetched, None, None]:
        """What is left of the present epoch, from the cursor on; sets the epoch's randomness."""

    def eval_batches(self, stage: Stage, loader: int) -> Iterator[Fetched]:
        """All batches of one evaluation loader that this rank evaluates."""

    def forward_backward(self, batch: Any, batch_idx: int, plan: StepPlan) -> Any:
        """One batch's forward and backward; returns what the user's step returned."""

    def optimizer_step(self, plan: StepPlan) -> bool:
        """Unscale, rescale, clip, step, clear; returns whether the weights changed."""

    def scheduler_step(self) -> None:
        """Moves the learning-rate scheduler."""

    def eval_step(self, stage: Stage, batch: Any, batch_idx: int, loader: int) -> Any:
        """One batch of an evaluation; returns what the user's step returned."""

    def eval_begin(self, stage: Stage) -> None:
        """Evaluation mode: no gradients, modules in eval mode, the run's randomness set aside."""

    def eval_end(self, stage: Stage) -> None:
        """Back to what was before `eval_begin`."""

    def gather(self, kind: str, value: Any) -> list[Any]:
        """One collective: the plain value of every rank, in the order of the ranks.

        `kind` says what is gathered. Ranks that come to one collective with different kinds are about to do different
        things: that is a WorldError on all of them, instead of a hang later.
        """

    def read(self, values: Sequence[Any]) -> list[float]:
        """One host read: device scalars and numbers, as floats."""

    def fold(self, reduce: Reduce, values: Sequence[Any], weights: Sequence[float]) -> Any:
        """Many scalars as one, in float64, on the device: the weighted mean, the sum, the least or the greatest."""

    def held(self, value: Any) -> Any:
        """A scalar that can be kept: without its graph."""

    def check_scalar(self, name: str, value: Any) -> None:
        """Raises DataError if the value that is logged under this name is not one number."""

    def batch_size(self, batch: Any) -> int:
        """The samples in this rank's batch, as the user's module or the batch's first array says."""
