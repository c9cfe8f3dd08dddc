"""Every: what may be written, what it means, and when it fires."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.cadence import Every, Unit
from lumen.errors import ConfigError
from lumen_tests.core.simulate import intervals

COUNTED = (Unit.BATCH, Unit.STEP, Unit.SAMPLE)


@pytest.mark.parametrize(
    ("text", "n", "unit"),
    [
        ("500 steps", 500, Unit.STEP),
        ("1 step", 1, Unit.STEP),
        ("step", 1, Unit.STEP),
        ("  7batches ", 7, Unit.BATCH),
        ("0.25 epochs", Fraction(1, 4), Unit.EPOCH),
        (".5 epoch", Fraction(1, 2), Unit.EPOCH),
        ("1/3 epoch", Fraction(1, 3), Unit.EPOCH),
        ("2.0 epochs", 2, Unit.EPOCH),
        ("1e6 samples", 1_000_000, Unit.SAMPLE),
        ("1.5e1 Samples", 15, Unit.SAMPLE),
        ("90 s", 90, Unit.SECOND),
        ("0.5 seconds", Fraction(1, 2), Unit.SECOND),
        ("30 min", 1800, Unit.SECOND),
        ("1.5 MINUTES", 90, Unit.SECOND),
        ("2h", 7200, Unit.SECOND),
        ("1/3 hours", 1200, Unit.SECOND),
    ],
)
def test_texts_that_are_intervals(text: str, n: int | Fraction, unit: Unit) -> None:
    parsed = Every.parse(text)
    assert (parsed.n, parsed.unit) == (n, unit)
    assert type(parsed.n) is type(n)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a number and a unit"),
        ("5", "a number and a unit"),
        ("-5 steps", "a number and a unit"),
        ("five steps", "a number and a unit"),
        ("5 steps 3", "a number and a unit"),
        ("nan steps", "a number and a unit"),
        ("1e999999999 steps", "a number and a unit"),
        ("5 stpes", "Did you mean 'steps'"),
        ("5 furlongs", "Known: batch"),
        ("1..2 epochs", "could not be read"),
        ("1/0 epochs", "could not be read"),
        (". epochs", "could not be read"),
        ("0 steps", "a whole number > 0"),
        ("1.5 steps", "a whole number > 0"),
        ("1/2 batch", "a whole number > 0"),
        ("0.0 epochs", "a number > 0"),
    ],
)
def test_other_texts_are_refused_under_the_arguments_name(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Every.parse(text, argument="val_check_interval")
    assert caught.value.argument == "val_check_interval"
    assert caught.value.got == text


@pytest.mark.parametrize("n", [0, -1, Fraction(-1, 2), 0.0, float("nan"), float("inf"), True, "5", None])
@pytest.mark.parametrize("unit", list(Unit))
def test_what_is_no_length_is_refused(n: Any, unit: Unit) -> None:
    with pytest.raises(ConfigError, match=f"an interval in {unit.plural}"):
        Every(n, unit)


@pytest.mark.parametrize("unit", COUNTED)
def test_counted_units_come_whole(unit: Unit) -> None:
    assert Every(2.0, unit) == Every(Fraction(4, 2), unit) == Every(2, unit)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a whole number"):
        Every(Fraction(1, 2), unit)


def test_a_float_is_the_fraction_it_stands_for() -> None:
    assert Every(0.1, Unit.EPOCH).n == Fraction(1, 10)  # type: ignore[arg-type]
    assert Every(1 / 3, Unit.EPOCH).n == Fraction(1, 3)  # type: ignore[arg-type]


@given(intervals)
def test_a_text_reads_back_as_the_interval(every: Every) -> None:
    assert Every.parse(str(every)) == every
    assert repr(every) == f"Every({str(every)!r})"


@pytest.mark.parametrize("n", [1, 2, 1_234_567, 10**40, Fraction(1, 3), Fraction(1_234_567, 10**6)])
def test_no_digit_is_lost_in_the_text(n: int | Fraction) -> None:
    every = Every(n, Unit.EPOCH)
    assert Every.parse(str(every)) == every


def test_singular_and_plural() -> None:
    assert str(Every(2, Unit.BATCH)) == "2 batches"
    assert [str(Every(n, Unit.EPOCH)) for n in (1, 2, Fraction(1, 4))] == ["1 epoch", "2 epochs", "0.25 epochs"]


@given(intervals, st.lists(st.fractions(0, 3, max_denominator=7), max_size=40))
def test_it_fires_once_for_each_jump_over_an_end_of_an_interval(every: Every, jumps: list[Fraction]) -> None:
    counter, fired = Fraction(0), 0
    for jump in jumps:
        fires = every.fires(counter, counter + jump)
        first_end = (counter // every.n + 1) * every.n
        assert fires == (first_end <= counter + jump)
        counter += jump
        fired += fires
    if all(jump <= every.n for jump in jumps):
        assert fired == math.floor(counter / every.n)


@given(intervals, st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_stop_in_between_neither_adds_nor_loses_an_event(every: Every, a: int, b: int, c: int) -> None:
    before, between, after = sorted((a, b, c))
    assert every.fires(before, after) == (every.fires(before, between) or every.fires(between, after))


@given(st.integers(1, 9), st.floats(0, 1e6), st.floats(0, 1e3))
def test_a_clock_may_be_a_float(n: int, before: float, jump: float) -> None:
    for every in (Every(n, Unit.SECOND), Every(Fraction(n, 2), Unit.SECOND)):
        exact = math.floor(Fraction(before) / every.n) != math.floor(Fraction(before + jump) / every.n)
        assert every.fires(before, before + jump) == exact
