"""The device of a rank."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

from lumen.core.devices import DevicePlan
from lumen.core.world import World
from lumen.shell.paddle_shim import paddle

_log = logging.getLogger("lumen")


def present_device(plan: DevicePlan, world: World) -> tuple[str, Any]:
    """The device that the program was on when it called `fleet.init`; what the Trainer asks for beside it is told."""
    present = paddle.get_device()
    kind, _, number = present.partition(":")
    count = len(plan.ids)
    if kind != plan.kind or count not in (1, world.local_size):
        _log.warning(
            "fleet.init was called before, on %s with %d ranks on this node: %d of %s, as the Trainer's accelerator "
            "and devices say, are not used.",
            present,
            world.local_size,
            count,
            plan.kind,
        )
    return kind, paddle.CUDAPlace(int(number)) if kind == "gpu" else paddle.CPUPlace()


def set_device(plan: DevicePlan, world: World) -> Any:
    """Goes to this rank's device, and returns its place."""
    if plan.kind == "cpu":
        paddle.set_device("cpu")
        return paddle.CPUPlace()
    selected = os.environ.get("FLAGS_selected_gpus", "").split(",")[0]  # noqa: SIM112 - Paddle's name
    device = int(selected) if world.size > 1 and selected else plan.ids[min(world.local_rank, len(plan.ids) - 1)]
    paddle.set_device(f"gpu:{device}")
    return paddle.CUDAPlace(device)


def make_deterministic() -> None:
    """Asks Paddle for kernels whose results do not depend on the order of additions; a CPU build has no such flags."""
    for flag in ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic"):
        with contextlib.suppress(ValueError):
            paddle.set_flags({flag: 1})
