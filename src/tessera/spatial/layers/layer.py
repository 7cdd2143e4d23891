"""A layer on a tile, and the table of those that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.spatial.placed import Placed, Settings


class Layer(Protocol):
    """Maps this rank's tile to its tile of the output, which lies as `placed` says.

    It reads weights and the training flag from the ordinary module at every call: who changes them there, changes
    them here.
    """

    placed: Placed

    def __call__(self, tile: Tensor) -> Tensor: ...


Maker = Callable[[Any, Placed, Settings], Layer]
M = TypeVar("M", bound=Maker)
LAYERS: dict[type[nn.Module], Maker] = {}
# what a module may override and still compute the same; a compiled call is that of the module
HARMLESS = {"_compiled_call_impl", "extra_repr", "reset_parameters"}


def makes(*modules: type[nn.Module]) -> Callable[[M], M]:
    """Register who makes the layer of a kind of module: `maker(module, placed, settings)`."""

    def register(maker: M) -> M:
        for module in modules:
            if module in LAYERS:
                raise ValueError(f"{module.__name__} has a layer already")
            LAYERS[module] = maker
        return maker

    return register


def layer_of(module: nn.Module, placed: Placed, settings: Settings, name: str) -> Layer:
    """The layer of a module that is called `name` in its network, for an input that lies as `placed`."""
    kind = type(module)
    known = (base for base in kind.__mro__ if base in LAYERS and _computes_as(kind, base))
    maker = next((LAYERS[base] for base in known), None)
    if maker is None:
        raise TesseraError(
            f"layer {name} has no way to run on cut images",
            got=kind.__name__,
            do="replace it by modules that have (`tessera.spatial.layers`), or write its layer (`makes`)",
        )
    try:
        return maker(module, placed, settings)
    except (TesseraError, ValueError) as error:  # a maker and the geometry know the module, not its name
        raise TesseraError(f"layer {name} ({kind.__name__}): {error}") from None


def _computes_as(kind: type[nn.Module], base: type[nn.Module]) -> bool:
    """Whether a kind of module computes what its base does: it overrides nothing that could change that."""
    below = kind.__mro__[: kind.__mro__.index(base)]
    own = {name for part in below for name, entry in vars(part).items() if callable(entry) and hasattr(base, name)}
    return {name for name in own if name == "__call__" or not name.startswith("__")} <= HARMLESS


class AsItIs:
    """A module that needs nothing of other ranks: it is called on what this rank has."""

    def __init__(self, module: nn.Module, given: Placed, placed: Placed) -> None:
        self._module, self._given, self.placed = module, given, placed

    def __call__(self, tile: Tensor) -> Tensor:
        if self._given.kind == "samples" and not tile.numel():
            return self._of_no_samples(tile)
        found: Tensor = self._module(tile)
        return found

    def _of_no_samples(self, tile: Tensor) -> Tensor:
        """Not every module computes on nothing: it gets one sample of zeros, of which nothing is kept."""
        zeros = tile.new_zeros(1, tile.shape[1], *self._given.sizes[1:])
        found: Tensor = self._module(torch.cat([tile.reshape(0, *zeros.shape[1:]), zeros]))
        return found[:0].reshape(0, found.shape[1], *(0 for _ in self.placed.sizes[1:]))


def is_cut(placed: Placed) -> bool:
    """Whether a rank may lack pixels that its neighbours in the image have."""
    return placed.kind == "tiles" and placed.mesh.size > 1
