"""FleetStrategy: how the ranks of a run work together, as a value."""

from __future__ import annotations

from typing import Any

import attrs

from lumen.errors import ConfigError, did_you_mean

SYNCS = ("auto", "overlap", "at_step")
UNEVEN = ("drop", "pad")
_OVERLAP_ONLY = {"find_unused_parameters": False, "comm_buffer_size": 25, "last_comm_buffer_size": 1}


@attrs.frozen(init=False)
class FleetStrategy:
    """How the ranks connect, and how their gradients come together.

    Args:
        gradient_sync: "overlap": Paddle's `DataParallel` reduces gradients while backward goes on. "at_step": each rank
            runs backward alone, and one fused all-reduce before the optimizer's step averages what all have; a gradient
            that a rank lacks counts as zero, so unused, frozen and late-used parameters, several forwards and several
            optimizers are right. "auto": "overlap", which is faster where steps are short (on two
            CPU ranks 1.3 to 1.9 ms a step of a small model, not 2.4 to 2.9; from 250,000 parameters on as fast).
        find_unused_parameters: Let `DataParallel` look for parameters without a gradient; with "overlap" only.
        comm_buffer_size: Megabytes of gradients that `DataParallel` reduces at once, > 0; with "overlap" only.
        last_comm_buffer_size: The same for the last of them.
        distributed_strategy: A `paddle.distributed.fleet.DistributedStrategy` for `fleet.init`.
        role_maker: A role maker for `fleet.init`.
        is_collective: True; parameter servers are not supported.
        connect_timeout: Seconds that the ranks have to find each other, > 0.
        uneven_data: What is done where ranks have different numbers of training batches, of data that lumen does not
            deal: "drop": the epoch ends with the first rank, and how much the others had left is told. "pad": it ends
            with the last rank; one that has no more repeats its first batch.

    Raises:
        ConfigError: A name is unknown, a value is out of range, or two of them contradict each other.

    Example:
        >>> FleetStrategy(gradient_sync="at_step").sync
        'at_step'
        >>> FleetStrategy(gradient_snc="at_step")
        Traceback (most recent call last):
        lumen.errors.ConfigError: FleetStrategy(gradient_snc=...): got 'at_step'. Did you mean 'gradient_sync'?
    """

    gradient_sync: str
    find_unused_parameters: bool
    comm_buffer_size: float
    last_comm_buffer_size: float
    distributed_strategy: Any
    role_maker: Any
    is_collective: bool
    connect_timeout: float
    uneven_data: str

    def __init__(
        self,
        *,
        gradient_sync: str = "auto",
        find_unused_parameters: bool = False,
        comm_buffer_size: float = 25,
        last_comm_buffer_size: float = 1,
        distributed_strategy: Any = None,
        role_maker: Any = None,
        is_collective: bool = True,
        connect_timeout: float = 300,
        uneven_data: str = "drop",
        **unknown: Any,
    ) -> None:
        names = [field.name for field in attrs.fields(FleetStrategy)]
        for name, value in unknown.items():
            raise ConfigError(f"FleetStrategy({name}=...)", got=value, do=did_you_mean(name, names))
        self.__attrs_init__(
            gradient_sync,
            find_unused_parameters,
            comm_buffer_size,
            last_comm_buffer_size,
            distributed_strategy,
            role_maker,
            is_collective,
            connect_timeout,
            uneven_data,
        )

    def __attrs_post_init__(self) -> None:
        if self.gradient_sync not in SYNCS:
            raise ConfigError("gradient_sync", got=self.gradient_sync, do=did_you_mean(str(self.gradient_sync), SYNCS))
        if self.uneven_data not in UNEVEN:
            raise ConfigError("uneven_data", got=self.uneven_data, do=did_you_mean(str(self.uneven_data), UNEVEN))
        if not isinstance(self.find_unused_parameters, bool):
            raise ConfigError("find_unused_parameters", got=self.find_unused_parameters, allowed="True or False")
        for name in ("comm_buffer_size", "last_comm_buffer_size", "connect_timeout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                unit = "seconds" if name == "connect_timeout" else "megabytes"
                raise ConfigError(name, got=value, allowed=f"a number of {unit} > 0")
        if self.is_collective is not True:
            raise ConfigError(
                "is_collective",
                got=self.is_collective,
                allowed="True",
                do="Parameter servers keep the weights in other processes, which a step of lumen knows nothing of.",
            )
        _check_fleet(self.role_maker, self.distributed_strategy)
        changed = [name for name, default in _OVERLAP_ONLY.items() if getattr(self, name) != default]
        if changed and self.gradient_sync == "at_step":
            raise ConfigError(
                f"{changed[0]} with gradient_sync",
                got=f"{getattr(self, changed[0])} with 'at_step'",
                allowed="gradient_sync='overlap', which alone has it",
                do="At the step every gradient is averaged, in one buffer, whichever parameters were used.",
            )

    @property
    def sync(self) -> str:
        """How gradients come together: "overlap" or "at_step"."""
        return "overlap" if self.gradient_sync == "auto" else self.gradient_sync


def _check_fleet(role_maker: Any, strategy: Any) -> None:
    """Refuses what `fleet.init` would take, and lumen does not do: parameter servers, and models split over ranks."""
    if role_maker is not None and not hasattr(role_maker, "_is_collective"):
        raise ConfigError("role_maker", got=role_maker, allowed="a role maker of paddle.distributed.fleet, or None")
    if strategy is not None and not hasattr(strategy, "hybrid_configs"):
        raise ConfigError("distributed_strategy", got=strategy, allowed="a fleet.DistributedStrategy, or None")
    servers = "Parameter servers keep the weights in other processes, which a step of lumen knows nothing of."
    if role_maker is not None and not role_maker._is_collective:
        raise ConfigError("role_maker", got="one of parameter servers", allowed="is_collective=True", do=servers)
    if strategy is None:
        return
    if strategy.a_sync:
        raise ConfigError("distributed_strategy.a_sync", got=True, allowed="False", do=servers)
    for name in ("mp_degree", "pp_degree", "sharding_degree", "sep_degree"):
        degree = strategy.hybrid_configs.get(name, 1)
        if degree > 1:
            raise ConfigError(
                f"distributed_strategy.hybrid_configs[{name!r}]",
                got=degree,
                allowed="1: every rank has the whole model",
            )


def make_strategy(given: Any) -> FleetStrategy:
    """The strategy that the Trainer was given.

    Args:
        given: "auto" or a `FleetStrategy`.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(given, FleetStrategy):
        return given
    if given == "auto":
        return FleetStrategy()
    raise ConfigError("strategy", got=given, allowed="'auto' or a lumen.FleetStrategy(...)")
