"""Gradients over ranks: reduced by Paddle while backward goes on, or all at once before the step."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from lumen.core.strategy import FleetStrategy
from lumen.core.world import World
from lumen.errors import ModuleError
from lumen.shell.layers import StepLayer, wrap_once
from lumen.shell.paddle_shim import paddle

_NOTHING = contextlib.nullcontext()


class GradientSync(Protocol):
    """How the gradients of several ranks come together.

    Attributes:
        step: The training step to call.
    """

    step: Callable[..., Any]

    def forward_scope(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """The context of a batch's forward.

        Args:
            last: Whether the batch closes its window.
        """

    def reduce(self, parameters: Sequence[Any]) -> None:
        """Averages the gradients over the ranks; every rank calls it before the step.

        Args:
            parameters: Those of the optimizer.
        """


class Alone:
    """One rank: there is nothing to do.

    Args:
        module: The user's module.
    """

    def __init__(self, module: Any) -> None:
        self.step = module.training_step

    def forward_scope(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `GradientSync.forward_scope`."""
        return _NOTHING

    def reduce(self, parameters: Sequence[Any]) -> None:
        """See `GradientSync.reduce`."""


class Overlap(Alone):
    """Paddle's `DataParallel`: buckets of gradients are reduced while backward goes on.

    Args:
        step: The training step, through the layers.
        layers: The `DataParallel`s of the module.
        gather: The value of every rank, by the name of what is gathered.
        module: The user's module.
    """

    def __init__(
        self, step: Callable[..., Any], layers: Sequence[Any], gather: Callable[[str, Any], list[Any]], module: Any
    ) -> None:
        self.step = step
        self._layers = layers
        self._gather = gather
        self._names = {parameter.name: name for name, parameter in module.named_parameters()}
        self._finds_unused = all(layer.find_unused_parameters for layer in layers)
        self._frozen = {parameter.name for parameter in module.parameters() if parameter.stop_gradient}
        self._unused: list[bool] | None = None
        self._stopped: list[bool] = []
        self._module = module
        self._accumulates = False
        self._reached: set[str] = set()  # parameters of which the last backward made a gradient

    def forward_scope(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """See `GradientSync.forward_scope`; `no_sync` is read by Paddle in forward, and only there."""
        if last:
            self._reached.clear()
            return _NOTHING
        if not self._accumulates:
            self._accumulates = True
            for parameter in self._module.parameters():
                parameter._register_backward_hook(functools.partial(self._reached.add, parameter.name))
        scopes = contextlib.ExitStack()
        for layer in self._layers:
            scopes.enter_context(layer.no_sync())
        return scopes

    def reduce(self, parameters: Sequence[Any]) -> None:
        """See `GradientSync.reduce`; it was done in backward, for the parameters that Paddle's reducer waits for.

        That are those with a gradient in the first backward of each rank. Where others had one, or some had none, the
        ranks went apart without a word (measured): so they are compared. 7 us for 100 parameters.

        Raises:
            ModuleError: Other parameters had a gradient than the reducer waits for.
        """
        if self._accumulates:  # others may have a gradient of an earlier batch, which was not averaged
            unused = [parameter.name not in self._reached for parameter in parameters]
        else:
            unused = [parameter.grad is None for parameter in parameters]
        frozen = [parameter.stop_gradient for parameter in parameters] if self._finds_unused else []
        if unused == self._unused and frozen == self._stopped:
            return
        names = [self._names.get(parameter.name, parameter.name) for parameter in parameters]
        if frozen != self._stopped:
            self._compare("frozen parameters", names, frozen, "been frozen on some ranks only")
            self._stopped = frozen
        if self._finds_unused:
            found = [
                not none and parameter.name in self._frozen for parameter, none in zip(parameters, unused, strict=True)
            ]
            if any(found):
                raise _not_reduced(names[found.index(True)], "a gradient, but was frozen when the module was wrapped")
        elif self._unused is None:
            self._compare("gradients", names, unused, "a gradient on some ranks only")
        else:
            changed = [before != none for before, none in zip(self._unused, unused, strict=True)]
            if any(changed):
                place = changed.index(True)
                word = "no" if unused[place] else "a"
                raise _not_reduced(names[place], f"{word} gradient in this step, unlike in the first")
        self._unused = unused

    def _compare(self, kind: str, names: Sequence[str], mine: list[bool], what: str) -> None:
        for rank, other in enumerate(self._gather(kind, mine)):
            if other != mine:
                place = next(number for number in range(len(names)) if other[number] != mine[number])
                raise _not_reduced(names[place], f"{what}, and rank {rank} is another one")


class AtStep(Alone):
    """Backward on each rank alone, then one all-reduce of all gradients before the step.

    Args:
        module: The user's module; it begins with rank 0's parameters and buffers, those that are not saved included.
        size: The number of ranks.
    """

    def __init__(self, module: Any, size: int) -> None:
        super().__init__(module)
        self._size = size
        with paddle.no_grad():
            _fused([*module.parameters(), *module.buffers()], lambda flat: paddle.distributed.broadcast(flat, src=0))

    def reduce(self, parameters: Sequence[Any]) -> None:
        """See `GradientSync.reduce`.

        The buffer's layout depends on the parameters alone, not on which of them a rank used: beside the gradients
        goes, for each parameter, whether this rank has one. What no rank has stays without a gradient.
        """
        trained = [parameter for parameter in parameters if not parameter.stop_gradient]
        if not trained:
            return
        have = [parameter.grad is not None for parameter in trained]
        with paddle.no_grad():
            counts = paddle.to_tensor([1.0 if one else 0.0 for one in have])
            gradients = [
                parameter.grad if one else paddle.zeros(parameter.shape, dtype=parameter.dtype)
                for parameter, one in zip(trained, have, strict=True)
            ]
            _fused([counts, *gradients], self._average)
            if not all(have):
                used = (counts * self._size).tolist()
                for parameter, gradient, one, ranks in zip(trained, gradients, have, used, strict=True):
                    if not one and ranks > 0.5:
                        parameter.grad = gradient

    def _average(self, flat: Any) -> None:
        paddle.distributed.all_reduce(flat)
        flat.scale_(1.0 / self._size)


def _fused(tensors: Iterable[Any], act: Callable[[Any], None]) -> None:
    """Does something with many tensors as one, in place; those of one type are laid behind each other."""
    kinds: dict[Any, list[Any]] = {}
    for tensor in tensors:
        if math.prod(tensor.shape):
            kinds.setdefault(tensor.dtype, []).append(tensor)
    for some in kinds.values():
        flat = paddle.concat([tensor.flatten() for tensor in some])
        act(flat)
        pieces = paddle.split(flat, [math.prod(tensor.shape) for tensor in some])
        for tensor, piece in zip(some, pieces, strict=True):
            tensor.copy_(piece.reshape(tensor.shape), False)


def _not_reduced(name: str, got: str) -> ModuleError:
    return ModuleError(
        f"the parameter {name}",
        got=f"it has {got}",
        allowed="the same parameters in every step, on every rank, which DataParallel needs",
        do="Use strategy=lumen.FleetStrategy(gradient_sync='at_step').",
    )


def gradient_sync(
    module: Any, world: World, strategy: FleetStrategy, wrapper: Any, gather: Callable[[str, Any], list[Any]]
) -> GradientSync:
    """How the gradients of this run come together.

    Args:
        module: The user's module.
        world: The ranks.
        strategy: What the user chose.
        wrapper: The user's own `DataParallel` around the module; None: there is none.
        gather: The value of every rank, by the name of what is gathered.

    Raises:
        ModuleError: The module holds a `DataParallel` that leaves out a parameter, or cannot be wrapped.
    """
    if world.size == 1:
        return Alone(module)
    if wrapper is not None:
        return Overlap(_through(wrapper, StepLayer(module)), [wrapper], gather, module)
    inner = parallel_layers(module)
    if inner:
        return Overlap(module.training_step, inner, gather, module)
    if strategy.sync == "at_step":
        return AtStep(module, world.size)
    layer = wrap_once(module, strategy)
    return Overlap(layer, [layer], gather, module)


def parallel_layers(module: Any) -> list[Any]:
    """The `DataParallel`s that a module holds and calls itself; lumen wraps nothing then.

    Args:
        module: The user's module.

    Raises:
        ModuleError: A trainable parameter is in none of them: its gradient would be each rank's own.
    """
    layers = [layer for layer in module.sublayers() if isinstance(layer, paddle.DataParallel)]
    if layers:
        reduced = {id(parameter) for layer in layers for parameter in layer.parameters()}
        for name, parameter in module.named_parameters():
            if not parameter.stop_gradient and id(parameter) not in reduced:
                raise ModuleError(
                    f"the module's parameter {name}",
                    got="outside of the DataParallel that the module holds",
                    allowed="every trainable parameter inside of one, or no DataParallel in the module",
                    do="Leave wrapping to lumen: take the DataParallel out of the module.",
                )
    return layers


def _through(wrapper: Any, step: StepLayer) -> Callable[..., Any]:
    """Calls the training step where the user's `DataParallel` would call the module's forward."""

    def call(*batch: Any) -> Any:
        layers = wrapper._sub_layers
        own, layers["_layers"] = layers["_layers"], step
        try:
            return wrapper(*batch)
        finally:
            layers["_layers"] = own

    return call
