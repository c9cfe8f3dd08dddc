"""Every: an interval with a unit, and the one rule of when it fires."""

from __future__ import annotations

import enum
import math
import re
from fractions import Fraction
from typing import Any

import attrs

from lumen.errors import ConfigError, did_you_mean


class Unit(enum.Enum):
    """What an interval counts."""

    BATCH = "batch"
    STEP = "step"
    EPOCH = "epoch"
    SAMPLE = "sample"
    SECOND = "second"

    @property
    def plural(self) -> str:
        """The word for several: "batches", "steps"."""
        return f"{self.value}{'es' if self is Unit.BATCH else 's'}"


_WORDS = {
    **dict.fromkeys(("batch", "batches"), (Unit.BATCH, 1)),
    **dict.fromkeys(("step", "steps"), (Unit.STEP, 1)),
    **dict.fromkeys(("epoch", "epochs"), (Unit.EPOCH, 1)),
    **dict.fromkeys(("sample", "samples"), (Unit.SAMPLE, 1)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), (Unit.SECOND, 1)),
    **dict.fromkeys(("min", "minute", "minutes"), (Unit.SECOND, 60)),
    **dict.fromkeys(("h", "hour", "hours"), (Unit.SECOND, 3600)),
}
_COUNTED = (Unit.BATCH, Unit.STEP, Unit.SAMPLE)
_TEXT = re.compile(r"\s*(?P<number>[0-9]+/[0-9]+|[0-9.]+(?:e[0-9]{1,2})?)?\s*(?P<word>[a-z]+)\s*", re.IGNORECASE)


def _exact(n: Any) -> Any:
    """An int where n is whole, else a fraction; a float is taken for the simple fraction that it stands for."""
    if isinstance(n, float) and math.isfinite(n):
        n = Fraction(n).limit_denominator(10**9)
    return int(n) if isinstance(n, Fraction) and n.denominator == 1 else n


@attrs.frozen
class Every:
    """An interval of ``n`` units.

    Args:
        n: Length of the interval, > 0; a whole number for batches, steps and samples.
        unit: What is counted. Epochs may be fractions: a quarter of an epoch is ``Every(Fraction(1, 4), Unit.EPOCH)``.

    Raises:
        ConfigError: n is not positive, or not whole for a unit that is counted in whole numbers.

    Example:
        >>> Every.parse("500 steps").fires(499, 500)
        True
        >>> Every.parse("0.25 epochs")
        Every('0.25 epochs')
    """

    n: int | Fraction = attrs.field(converter=_exact)
    unit: Unit

    def __attrs_post_init__(self) -> None:
        _check(self.n, self.unit, f"an interval in {self.unit.plural}", self.n)

    def __repr__(self) -> str:
        return f"Every({str(self)!r})"

    def __str__(self) -> str:
        number = str(self.n)
        if isinstance(self.n, Fraction) and Fraction(f"{float(self.n):g}") == self.n:
            number = f"{float(self.n):g}"
        return f"{number} {self.unit.value if self.n == 1 else self.unit.plural}"

    @classmethod
    def parse(cls, text: str, *, argument: str = "an interval") -> Every:
        """Reads ``"500 steps"``, ``"0.25 epochs"``, ``"1/3 epoch"``, ``"30 min"``, ``"1e6 samples"`` or ``"epoch"``.

        Args:
            text: A number (1 when left out) and a unit: batch, step, epoch, sample, s, min or h, singular or plural.
            argument: The name that an error should show.

        Raises:
            ConfigError: The text is not of that form, names an unknown unit, or a number that is none of its intervals.
        """
        match = _TEXT.fullmatch(text)
        allowed = 'a number and a unit, such as "500 steps", "0.25 epochs" or "30 min"'
        if match is None:
            raise ConfigError(argument, got=text, allowed=allowed, do="Units: batch, step, epoch, sample, s, min, h.")
        word = match["word"].lower()
        if word not in _WORDS:
            raise ConfigError(argument, got=text, allowed=allowed, do=did_you_mean(word, _WORDS))
        unit, factor = _WORDS[word]
        try:
            number = Fraction(match["number"] or "1") * factor
        except (ValueError, ZeroDivisionError):
            raise ConfigError(argument, got=text, allowed=allowed, do="The number could not be read.") from None
        _check(_exact(number), unit, argument, text)
        return cls(number, unit)

    def fires(self, before: float | Fraction, after: float | Fraction) -> bool:
        """Whether an interval ended between two readings of its counter.

        It compares ``floor(before / n)`` with ``floor(after / n)``, so that a jump or a resume neither misses nor
        repeats an event.

        Args:
            before: The counter at the last reading, in units, >= 0.
            after: The counter now, >= before.
        """
        n = self.n
        if type(n) is int:
            return bool(before // n != after // n)
        return math.floor(Fraction(before) / n) != math.floor(Fraction(after) / n)


def _check(n: Any, unit: Unit, argument: str, got: Any) -> None:
    number = isinstance(n, (int, Fraction)) and not isinstance(n, bool)
    if not number or n <= 0 or (unit in _COUNTED and not isinstance(n, int)):
        raise ConfigError(
            argument,
            got=got,
            allowed="a whole number > 0" if unit in _COUNTED else "a number > 0",
            do=f"Give how many {unit.plural} lie between two events.",
        )
