"""Every: an interval with a unit, and the one rule of when it fires."""

from __future__ import annotations

import enum
import math
import re
from fractions import Fraction

import attrs

from lumen.errors import ConfigError, did_you_mean


class Unit(enum.Enum):
    """What an interval counts."""

    BATCH = "batch"
    STEP = "step"
    EPOCH = "epoch"
    SAMPLE = "sample"
    SECOND = "second"


_WORDS = {
    **{word: (Unit.BATCH, 1) for word in ("batch", "batches")},
    **{word: (Unit.STEP, 1) for word in ("step", "steps")},
    **{word: (Unit.EPOCH, 1) for word in ("epoch", "epochs")},
    **{word: (Unit.SAMPLE, 1) for word in ("sample", "samples")},
    **{word: (Unit.SECOND, 1) for word in ("s", "sec", "second", "seconds")},
    **{word: (Unit.SECOND, 60) for word in ("min", "minute", "minutes")},
    **{word: (Unit.SECOND, 3600) for word in ("h", "hour", "hours")},
}
_COUNTED = (Unit.BATCH, Unit.STEP, Unit.SAMPLE)
_TEXT = re.compile(r"\s*(?P<number>[0-9.]+(?:e[0-9]+)?)?\s*(?P<word>[A-Za-z]+)\s*", re.IGNORECASE)


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

    n: int | Fraction
    unit: Unit

    def __attrs_post_init__(self) -> None:
        if self.n <= 0 or (self.unit in _COUNTED and Fraction(self.n).denominator != 1):
            raise ConfigError(
                f"an interval in {self.unit.value}s",
                got=self.n,
                allowed="a whole number > 0" if self.unit in _COUNTED else "a number > 0",
                do="Give how many of them lie between two events.",
            )

    def __repr__(self) -> str:
        return f"Every({str(self)!r})"

    def __str__(self) -> str:
        return f"{float(self.n):g} {self.unit.value}{'' if self.n == 1 else 's'}"

    @classmethod
    def parse(cls, text: str, *, argument: str = "an interval") -> Every:
        """Reads ``"500 steps"``, ``"0.25 epochs"``, ``"30 min"``, ``"1e6 samples"`` or ``"epoch"``.

        Args:
            text: A number (1 when left out) and a unit: batch, step, epoch, sample, s, min or h, singular or plural.
            argument: The name that an error should show.

        Raises:
            ConfigError: The text is not of that form, or names an unknown unit.
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
        return cls(int(number) if number.denominator == 1 else number, unit)

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
