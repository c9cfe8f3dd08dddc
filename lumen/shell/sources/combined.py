"""Combined: several training loaders as one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import attrs

from lumen.core.combining import CombinedLoader, Mode, epoch_length
from lumen.core.loading import Keep
from lumen.shell.sources.base import Item, Source, Span, State

_LAP = 1 << 40  # the epochs of a loader's further passes lie beyond all epochs of a run


@attrs.define
class _Part:
    """How far one loader is.

    Args:
        source: Its batches.
        lap: Passes through it that were finished in this epoch.
        consumed: Samples of the present pass that all ranks consumed.
        batch: Batches of the present pass that this rank took.
        reading: The present pass.
    """

    source: Source
    lap: int = 0
    consumed: int = 0
    batch: int = 0
    reading: Generator[Item, None, None] | None = None

    def span(self, epoch: int) -> Span:
        return Span(epoch + self.lap * _LAP, self.consumed, self.batch)

    def next(self, epoch: int) -> Item | None:
        """The next batch, of a new pass if the last one is over; None if the loader gives nothing."""
        if self.reading is None:
            self.reading = self.source.epoch(self.span(epoch))
        item = next(self.reading, None)
        if item is None:
            return None
        _, samples, last = item
        self.consumed += samples
        self.batch += 1
        if last:
            next(self.reading, None)  # to its end: workers that are left in the middle are ended
            self.reading = None
            self.lap, self.consumed, self.batch = self.lap + 1, 0, 0
        return item

    def close(self) -> None:
        if self.reading is not None:
            self.reading.close()
            self.reading = None


class Combined(Source):
    """Several training loaders as one.

    Args:
        loader: What they are and how they are put together.
        sources: The batches of each.
    """

    def __init__(self, loader: CombinedLoader, sources: Sequence[Source]) -> None:
        self.plan = Keep()
        self.sources = list(sources)
        self.dealt = all(source.dealt for source in sources)
        self._loader = loader
        self._parts = [_Part(source) for source in sources]
        self.batches = epoch_length(loader.mode, [source.batches for source in sources], [False] * len(sources))

    def _at(self, span: Span) -> list[_Part]:
        """Where each loader stands at this place."""
        saved = self.resumed(span).get("parts", [{}] * len(self.sources))
        return [
            _Part(source, part.get("lap", 0), part.get("consumed", 0), part.get("batch", 0))
            for source, part in zip(self.sources, saved, strict=True)
        ]

    def left(self, span: Span) -> int | None:
        """Batches left of an epoch."""
        parts = self._at(span)
        lengths = [part.source.left(part.span(span.epoch)) for part in parts]
        return epoch_length(self._loader.mode, lengths, [part.lap > 0 for part in parts])

    def epoch(self, span: Span) -> Generator[Item, None, None]:
        """The rest of an epoch; see `Source.epoch`."""
        parts = self._parts = self._at(span)
        number = span.batch
        step = self._one if self._loader.mode is Mode.SEQUENTIAL else self._each
        try:
            while span.limit is None or number < span.limit:
                if span.before_fetch is not None:
                    span.before_fetch(number)
                item = step(parts, span.epoch)
                if item is None:
                    return
                number += 1
                data, samples, last = item
                last = last or number == span.limit
                yield data, samples, last
                if last:
                    return
        finally:
            for part in parts:
                part.close()

    def _each(self, parts: list[_Part], epoch: int) -> Item | None:
        items = []
        for part in parts:
            item = part.next(epoch)
            if item is None:
                return None
            items.append(item)
        seen = [part.lap > 0 for part in parts]
        last = any(seen) if self._loader.mode is Mode.MIN_SIZE else all(seen)
        return self._loader.join([data for data, _, _ in items]), sum(samples for _, samples, _ in items), last

    def _one(self, parts: list[_Part], epoch: int) -> Item | None:
        part = next((part for part in parts if not part.lap), None)
        item = part.next(epoch) if part is not None else None
        if item is None:
            return None
        data, samples, _ = item
        return data, samples, all(part.lap for part in parts)

    def state(self) -> dict[str, Any]:
        """Where each loader stands; see `Source.state`."""
        return {
            "parts": [
                {"lap": part.lap, "consumed": part.consumed, "batch": part.batch, "state": part.source.state()}
                for part in self._parts
            ]
        }

    def restore(self, states: Sequence[State], span: Span, rank: int) -> None:
        """See `Source.restore`."""
        super().restore(states, span, rank)
        if not span.batch:
            self._resumed = None  # an epoch begins, and with it a pass through each loader
        for number, part in enumerate(self._at(span)):
            own = [state["parts"][number]["state"] for state in states if len(state.get("parts", ())) > number]
            part.source.restore(own, part.span(span.epoch), rank)

    def facts(self) -> dict[str, Any]:
        """See `Source.facts`."""
        each = [source.facts() for source in self.sources]
        return {key: [facts[key] for facts in each] for key in ("length", "batch_size", "order")} | {
            "mode": self._loader.mode.value
        }

    def close(self) -> None:
        """Ends what the loaders started."""
        for source in self.sources:
            source.close()
