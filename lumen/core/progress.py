"""Progress and TrainState: how far a run has come, as values."""

from __future__ import annotations

import attrs

from lumen.core.policy import StopReason
from lumen.core.requests import NO_AGREED, Agreed

COUNTERS = ("batch", "step", "epoch", "samples", "seconds")
"""The counters that come with every record of logged values; a logger chooses which of them is its axis."""


@attrs.frozen
class Progress:
    """Counts of what is done; all global, the same on every rank.

    Args:
        epoch: Epochs finished.
        batch: Batches trained on in the present epoch, per rank.
        window: Batches in the window that is open; 0 between windows.
        step: Optimizer steps attempted.
        skipped: Optimizer steps among them that the grad scaler refused.
        batches: Batches trained on, per rank, over all epochs.
        consumed: Samples of the present epoch trained on, over all ranks: the cursor in the epoch's order.
        samples: Samples trained on, over all ranks and epochs.
        window_samples: Samples in the window that is open.
        seconds: Training time as the ranks last agreed on it, in seconds.
        seconds_before: The same at the close of the last window.
    """

    epoch: int = 0
    batch: int = 0
    window: int = 0
    step: int = 0
    skipped: int = 0
    batches: int = 0
    consumed: int = 0
    samples: int = 0
    window_samples: int = 0
    seconds: float = 0.0
    seconds_before: float = 0.0

    @property
    def applied(self) -> int:
        """Optimizer steps that changed the weights."""
        return self.step - self.skipped


@attrs.frozen(kw_only=True)
class TrainState:
    """What a run is at, and whether it is over; equal on all ranks, and what a checkpoint stores.

    Args:
        progress: The counters.
        stopped: Why the run ended; None while it goes on.
        asked: Requests that all ranks know of and that still wait, for `min_epochs` say.
    """

    progress: Progress = Progress()
    stopped: StopReason | None = None
    asked: Agreed = NO_AGREED
