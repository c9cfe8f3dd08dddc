"""What a progress display shows, as values and texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import attrs

_RECENT = 20  # readings that the present speed is taken over


def rate(value: float) -> str:
    """A rate in three digits, or in whole numbers where it has more.

    Example:
        >>> rate(0.12345), rate(1263.4)
        ('0.123', '1,263')
    """
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


@attrs.frozen(kw_only=True)
class View:
    """One loop as it is shown.

    Args:
        title: Which loop: "epoch 3/10", "test".
        done: Batches done.
        total: Batches there are; None: not known.
        speed: How many units a second; None: not known yet.
        unit: What speed counts: "steps" or "batches".
        left: Seconds until the loop's end; None: not known.
        metrics: Name to value.
    """

    title: str
    done: int
    total: int | None = None
    speed: float | None = None
    unit: str = "batches"
    left: float | None = None
    metrics: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def count(self) -> str:
        """The batches: "120/469 batches"."""
        return f"{self.done}{'' if self.total is None else f'/{self.total}'} batches"

    @property
    def details(self) -> str:
        """Speed, time left and metrics, as far as they are known."""
        facts = [] if self.speed is None else [f"{rate(self.speed)} {self.unit}/s"]
        facts += [] if self.left is None else [f"{span(self.left)} left"]
        return ", ".join([*facts, *metric_texts(self.metrics)])

    def __str__(self) -> str:
        return ", ".join(text for text in (f"{self.title}: {self.count}", self.details) if text)


class Meter:
    """How fast something is counted: lately, and over all; pauses do not count.

    Args:
        now: The time, in seconds.
        count: The count now.

    Attributes:
        elapsed: Seconds until the last reading.
        mean: Counts per second until the last reading.

    Example:
        >>> meter = Meter(100.0, 0)
        >>> meter.read(102.0, 8)
        4.0
        >>> meter.pause(5.0)
        >>> meter.read(108.0, 10), meter.elapsed
        (3.3333333333333335, 3.0)
    """

    def __init__(self, now: float, count: int) -> None:
        self._start = now, count
        self._recent = deque([self._start], maxlen=_RECENT)
        self.elapsed = 0.0
        self.mean = 0.0

    def read(self, now: float, count: int) -> float | None:
        """Counts per second over the last readings; None if nothing was counted."""
        at, before = self._recent[0]
        self._recent.append((now, count))
        self.elapsed = now - self._start[0]
        self.mean = (count - self._start[1]) / self.elapsed if self.elapsed > 0 else 0.0
        return (count - before) / (now - at) if now > at and count > before else None

    def pause(self, seconds: float) -> None:
        """So many seconds since the last reading do not count."""
        self._start = self._start[0] + seconds, self._start[1]
        self._recent = deque(((at + seconds, count) for at, count in self._recent), maxlen=_RECENT)


def metric_texts(metrics: Mapping[str, Any]) -> list[str]:
    """Each metric as "name=value", numbers with four digits.

    Example:
        >>> metric_texts({"loss": 0.123456, "phase": "warm-up"})
        ['loss=0.1235', 'phase=warm-up']
    """
    return [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in metrics.items()]


def span(seconds: float) -> str:
    """A time as people write it.

    Example:
        >>> span(2.34), span(75.2), span(3661)
        ('2.3 s', '1:15', '1:01:01')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
