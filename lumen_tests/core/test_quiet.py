"""Quiet stretches against the plans made batch by batch."""

from __future__ import annotations

from fractions import Fraction

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from lumen.core.cadence import Every, Unit
from lumen.core.planning import advance, plan_close, plan_step
from lumen.core.policy import Policy, Validation
from lumen.core.progress import Progress
from lumen.core.quiet import advance_quiet, quiet_batches, quiet_plans
from lumen.core.requests import NO_AGREED

counted = st.builds(Every, st.integers(1, 9), st.sampled_from([Unit.STEP, Unit.BATCH, Unit.EPOCH]))
shares = st.builds(
    Every, st.fractions(Fraction(1, 9), Fraction(3), max_denominator=12).filter(lambda f: f > 0), st.just(Unit.EPOCH)
)
rules = counted | shares
validations = st.builds(Validation, every=rules, nth_epoch=st.none()) | st.builds(
    Validation, every=shares | st.builds(Every, st.integers(1, 9), st.just(Unit.BATCH)), nth_epoch=st.integers(1, 3)
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    return Policy(
        max_steps=draw(st.none() | st.integers(1, 40)),
        accumulate=draw(st.integers(1, 5)),
        log=draw(st.none() | rules),
        validate=draw(st.none() | validations),
        checkpoint=tuple(draw(st.lists(rules, max_size=2))),
        checkpoint_on_validation=draw(st.booleans()),
        agree=draw(st.none() | rules),
        schedule=draw(st.none() | st.builds(Every, st.integers(1, 3), st.sampled_from([Unit.STEP, Unit.EPOCH]))),
    )


@settings(max_examples=300)
@given(policies(), st.integers(1, 17), st.integers(1, 3), st.booleans(), st.integers(1, 8))
def test_a_quiet_stretch_has_the_plans_and_the_progress_of_its_batches(
    policy: Policy, length: int, epochs: int, alone: bool, size: int
) -> None:
    policy = attrs.evolve(policy, epoch_batches=length)
    inside, closing = quiet_plans(policy)
    progress, found = Progress(), 0
    for _ in range(epochs * length):
        quiet = quiet_batches(policy, progress, left=length - progress.batch, alone=alone)
        assert 0 <= quiet < length
        found += quiet
        ahead = progress
        for done in range(quiet):
            last = ahead.batch == length - 1
            plan = plan_step(policy, ahead, last=last, samples=size)
            expected = closing if ahead.window + 1 == policy.accumulate else inside
            if alone and policy.agree is not None:
                plan = attrs.evolve(plan, agree=False)
            assert plan == expected
            ahead = advance(ahead, plan, stepped=True, samples=size)
            if not (alone and policy.agree is not None):
                close = plan_close(policy, ahead, plan, NO_AGREED)
                assert not close.checkpoint
                assert close.stop is None
            assert ahead == advance_quiet(policy, progress, batches=done + 1, skipped=0, samples=size * (done + 1))
        plan = plan_step(policy, progress, last=progress.batch == length - 1, samples=size)
        progress = advance(progress, plan, stepped=True, samples=size)
        if plan_close(policy, progress, plan, NO_AGREED).stop is not None:
            break


def test_most_batches_of_an_ordinary_run_are_quiet() -> None:
    policy = Policy(max_epochs=1, log=Every(50, Unit.STEP), agree=Every(1, Unit.STEP), epoch_batches=1000)
    assert quiet_batches(policy, Progress(), left=1000, alone=True) == 49
    assert quiet_batches(policy, Progress(), left=1000, alone=False) == 0
    assert quiet_batches(attrs.evolve(policy, log=None), Progress(), left=1000, alone=True) == 999
