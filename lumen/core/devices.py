"""Devices: what `accelerator=` and `devices=` mean, given what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from lumen.errors import ConfigError, did_you_mean

_ACCELERATORS = ("auto", "cpu", "gpu")
_ALLOWED = '"auto", an int >= 1, -1 (all GPUs), a list of GPU numbers, or one of these as a text ("2", "0,2")'


@attrs.frozen(kw_only=True)
class DevicePlan:
    """One process per entry on this node.

    Args:
        kind: "cpu" or "gpu".
        ids: GPU numbers in the order of the local ranks; on a CPU just 0, 1, ….
        asked: Whether the user named them, or how many: not "auto".
    """

    kind: Literal["cpu", "gpu"]
    ids: tuple[int, ...]
    asked: bool = False


def plan_devices(accelerator: str, devices: int | str | Sequence[int], *, gpus: int) -> DevicePlan:
    """What the Trainer's arguments ask for.

    Args:
        accelerator: "auto" (GPUs where there are some), "cpu" or "gpu".
        devices: "auto" (one process on a CPU, all GPUs), how many, -1 for all GPUs, or which ones in rank order.
        gpus: GPUs that Paddle can use, >= 0.

    Raises:
        ConfigError: An argument cannot be read, or asks for what is not there.

    Example:
        >>> plan_devices("auto", "2,0", gpus=4).ids
        (2, 0)
        >>> plan_devices("cpu", 2, gpus=0)
        DevicePlan(kind='cpu', ids=(0, 1), asked=True)
    """
    if accelerator not in _ACCELERATORS:
        raise ConfigError(
            "accelerator",
            got=accelerator,
            allowed=", ".join(map(repr, _ACCELERATORS)),
            do=did_you_mean(str(accelerator), _ACCELERATORS),
        )
    kind: Literal["cpu", "gpu"] = "gpu" if accelerator == "gpu" or (accelerator == "auto" and gpus) else "cpu"
    if kind == "gpu" and not gpus:
        raise ConfigError(
            "accelerator",
            got="gpu",
            allowed="'cpu' or 'auto': Paddle sees no GPU here",
            do="Install the GPU build of Paddle and check nvidia-smi, or use accelerator='cpu'.",
        )
    wanted = _read(devices)
    if wanted is None:
        return DevicePlan(kind=kind, ids=tuple(range(gpus)) if kind == "gpu" else (0,))
    return DevicePlan(kind=kind, ids=_ids(kind, wanted, devices, gpus), asked=True)


def check_data_device(name: object, *, gpus: int) -> str | None:
    """What `data_device=` means.

    Args:
        name: "cpu", "gpu" (the rank's own), "gpu:1", or None: where the module is.
        gpus: GPUs that Paddle can use, >= 0.

    Raises:
        ConfigError: It is none of these, or there is no such GPU.

    Example:
        >>> check_data_device("gpu:1", gpus=2)
        'gpu:1'
    """
    allowed = "None (where the module is), 'cpu', 'gpu' or 'gpu:N'"
    if name is None or name == "cpu":
        return name
    kind, colon, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind != "gpu" or (colon and not (number.isascii() and number.isdigit())):
        raise ConfigError("data_device", got=name, allowed=allowed, do=did_you_mean(str(name), ("cpu", "gpu")))
    if int(number or 0) >= gpus:
        raise ConfigError("data_device", got=name, allowed=allowed, do=f"Paddle sees {gpus} GPUs here.")
    return str(name)


def _read(devices: object) -> int | tuple[int, ...] | None:
    """A number of devices, the numbers of some, or None for "auto"."""
    if isinstance(devices, str):
        text = devices.strip()
        if text == "auto":
            return None
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            raise _refuse(devices, "A text is a number, or numbers with commas between.") from None
        return numbers[0] if "," not in text else tuple(numbers)
    if isinstance(devices, int) and not isinstance(devices, bool):
        return devices
    if isinstance(devices, (list, tuple)) and all(isinstance(d, int) and not isinstance(d, bool) for d in devices):
        return tuple(devices)
    raise _refuse(devices)


def _ids(kind: str, wanted: int | tuple[int, ...], devices: object, gpus: int) -> tuple[int, ...]:
    if isinstance(wanted, int):
        if wanted == -1:
            if kind == "cpu":
                raise _refuse(
                    devices, "On a CPU there is no number of devices to take all of: give how many processes."
                )
            return tuple(range(gpus))
        if wanted < 1:
            raise _refuse(devices, "Use devices=1 for one process.")
        if kind == "gpu" and wanted > gpus:
            raise _refuse(devices, f"Paddle sees {gpus} GPU{'s' if gpus > 1 else ''} here.")
        return tuple(range(wanted))
    if not wanted:
        raise _refuse(devices, "Name at least one device.")
    if len(set(wanted)) < len(wanted):
        raise _refuse(devices, "Each device can be named once.")
    if min(wanted) < 0 or (kind == "gpu" and max(wanted) >= gpus):
        raise _refuse(devices, f"Device numbers here go from 0 to {gpus - 1}." if gpus else "Numbers start at 0.")
    return wanted


def _refuse(devices: object, do: str = "") -> ConfigError:
    return ConfigError("devices", got=devices, allowed=_ALLOWED, do=do)
