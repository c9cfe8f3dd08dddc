"""A run without a runtime: the pure functions in the order in which the loop calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import attrs
from hypothesis import strategies as st

from lumen.core.cadence import Every, Unit
from lumen.core.planning import ClosePlan, StepPlan, advance, plan_close, plan_step
from lumen.core.policy import Policy, Validation
from lumen.core.progress import TrainState
from lumen.core.requests import Agreed, Request, agree

NOBODY: Mapping[int, Sequence[Request]] = {}


@attrs.frozen
class Batch:
    """What was planned for a batch, and the state after it."""

    plan: StepPlan
    close: ClosePlan
    state: TrainState


def simulate(
    policy: Policy,
    lengths: Sequence[int],
    state: TrainState | None = None,
    *,
    size: Callable[[int], int] = lambda batch: 4,
    refused: Iterable[int] = (),
    requests: Mapping[int, Sequence[Request]] = NOBODY,
    seconds: Callable[[int], float] = float,
) -> list[Batch]:
    """The whole run, or the rest of it.

    Args:
        policy: The policy.
        lengths: Batches of each epoch; the data ends with the last of them.
        state: Where to go on from.
        size: Samples of a batch, by its number in the run.
        refused: Steps that the grad scaler refuses, counted from 1.
        requests: What each rank asks for after a batch, by its number in the run, from 0.
        seconds: The clock after so many batches.
    """
    state = state or TrainState()
    progress, asked, stopped = state.progress, state.asked, state.stopped
    skips = frozenset(refused)
    held: list[Request] = []
    batches: list[Batch] = []
    while stopped is None and progress.epoch < len(lengths):
        length = lengths[progress.epoch]
        policy = attrs.evolve(policy, epoch_batches=length)
        number = progress.batches
        plan = plan_step(policy, progress, last=progress.batch == length - 1, samples=size(number))
        stepped = plan.optimizer_step and progress.step + 1 not in skips
        progress = advance(progress, plan, stepped=stepped, samples=size(number))
        held += requests.get(number, ())
        agreed: Agreed = asked
        if plan.agree:
            agreed, held = agree([asked, *held]), []
            progress = attrs.evolve(progress, seconds=seconds(progress.batches))
        close = plan_close(policy, progress, plan, agreed)
        asked, stopped = close.asked, close.stop
        batches.append(Batch(plan, close, TrainState(progress=progress, stopped=stopped, asked=asked)))
    return batches


def letters(batches: Iterable[Batch]) -> str:
    """A run as a text: a word a batch, "." where nothing happens; capitals as in the golden tables."""
    return " ".join(_word(batch) for batch in batches)


def _word(batch: Batch) -> str:
    plan, close = batch.plan, batch.close
    marks = [
        ("S", plan.optimizer_step),
        ("r", plan.scheduler_step),
        ("L", plan.log),
        ("V", plan.validate),
        ("E", plan.end_epoch),
        ("A", plan.agree),
        ("C", close.checkpoint),
        ("!", close.stop is not None),
    ]
    return "".join(mark for mark, holds in marks if holds) or "."


whole = st.builds(Every, st.integers(1, 9), st.sampled_from(list(Unit)))
shares = st.builds(Every, st.fractions(Fraction(1, 9), 3, max_denominator=9), st.just(Unit.EPOCH))
seconds = st.builds(Every, st.fractions(Fraction(1, 2), 9, max_denominator=4), st.just(Unit.SECOND))
intervals = whole | shares | seconds
inside = shares | st.builds(Every, st.integers(1, 9), st.sampled_from([Unit.BATCH, Unit.EPOCH]))
validations = st.builds(Validation, every=intervals) | st.builds(Validation, every=inside, nth_epoch=st.integers(1, 3))
optional_count = st.none() | st.integers(1, 25)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy."""
    return Policy(
        max_epochs=draw(st.none() | st.integers(1, 5)),
        max_steps=draw(optional_count),
        min_epochs=draw(st.integers(0, 3)),
        min_steps=draw(st.integers(0, 12)),
        accumulate=draw(st.integers(1, 5)),
        log=draw(st.none() | intervals),
        validate=draw(st.none() | validations),
        checkpoint=tuple(draw(st.lists(intervals, max_size=2))),
        checkpoint_on_validation=draw(st.booleans()),
        agree=draw(st.none() | intervals),
        schedule=draw(st.none() | st.builds(Every, st.integers(1, 3), st.sampled_from([Unit.STEP, Unit.EPOCH]))),
    )


lengths = st.lists(st.integers(1, 13), min_size=1, max_size=4)
