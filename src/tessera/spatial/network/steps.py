"""What a rank does, call by call: values that stand for its parts of the network's tensors, and steps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.spatial.layers.layer import layer_of
from tessera.spatial.network.move import Parts, Repartition, Share
from tessera.spatial.placed import Kind, Placed, Settings

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor of the network before it is computed: the shape that it has uncut, and how it lies over the ranks.

    What is computed from weights alone is not placed: every rank has it. `weights` names them.
    """

    slot: int
    shape: Shape
    placed: Placed | None
    weights: frozenset[str] = frozenset()

    @property
    def is_spread(self) -> bool:
        """Whether it has one pixel per sample, to be spread over whole images."""
        return prod(self.shape[2:]) == 1

    def has(self, kind: Kind) -> bool:
        return self.placed is not None and self.placed.kind == kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call: it reads the values in some slots and leaves its result in another."""

    name: str
    call: Callable[..., Tensor]
    inputs: tuple[int, ...]
    output: int


class Steps:
    """The steps of a network as they are found."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self.settings = settings
        self.found: list[Step] = []
        self.slots = 0
        self._names = {id(weight): name for name, weight in model.named_parameters()}
        self._uses: dict[str, set[bool]] = {}  # by weight: whether what it is used on is cut

    def value(self, shape: Iterable[int], placed: Placed | None, weights: frozenset[str] = frozenset()) -> Value:
        """A value in a slot of its own."""
        self.slots += 1
        return Value(slot=self.slots - 1, shape=tuple(shape), placed=placed, weights=weights)

    def weight(self, tensor: Tensor, read: Callable[[], Tensor], name: str) -> Value:
        """A parameter or buffer that the network uses directly; it is read anew in every round."""
        names = frozenset([self._names[id(tensor)]] if id(tensor) in self._names else ())
        found = self.value(tensor.shape, None, names)
        self.found.append(Step(name=name, call=read, inputs=(), output=found.slot))
        return found

    def add(
        self, name: str, call: Callable[..., Tensor], inputs: Sequence[Value], shape: Sequence[int], kind: Kind | None
    ) -> Value:
        """A call on this rank's parts, whose result lies as `kind` says; None if it is made of weights alone."""
        weights = frozenset(weight for value in inputs for weight in value.weights)
        if kind is None:
            found = self.value(shape, None, weights)
        else:
            found = self.value(shape, self.placed(kind, shape))
            self._use(weights, kind)
        self.found.append(Step(name=name, call=call, inputs=tuple(v.slot for v in inputs), output=found.slot))
        return found

    def layer(self, name: str, module: nn.Module, value: Value, shape: Sequence[int]) -> Value:
        """A module on this rank's part of a value."""
        assert value.placed is not None, "a layer has an activation as its input"
        layer = layer_of(module, value.placed, self.settings, name)
        if layer.placed.sizes != (shape[0], *shape[2:]):
            raise TesseraError(f"{name}: the layer's output is not that of the uncut network", got=layer.placed.sizes)
        found = self.value(shape, layer.placed)
        self.found.append(Step(name=name, call=layer, inputs=(value.slot,), output=found.slot))
        self._use((self._names[id(weight)] for weight in module.parameters() if id(weight) in self._names), value)
        return found

    def moved(self, value: Value, kind: Kind) -> Value:
        """The same value in another placement."""
        placed = value.placed
        assert placed is not None, "weights are everywhere"
        if placed.kind == kind:
            return value
        target = self.placed(kind, value.shape)
        call: Callable[[Tensor], Tensor]
        if kind == "whole":
            call = Parts(placed, self.settings).collect
        elif placed.kind == "whole":
            call = Parts(target, self.settings).cut
        else:
            call = Repartition(placed.partition, target.partition, self.settings)
        return self.add(f"{placed.kind} to {kind}", call, [value], value.shape, kind)

    def shared(self, value: Value, tiles: Placed) -> Value:
        """A value of one pixel per sample, ready to be spread over tiles."""
        rank, whole = self.settings.transport.rank, self.moved(value, "whole")
        share = Share(tiles.box(rank).shape[0], self.settings.transport)
        return self.add("share", share, [whole], value.shape, "whole")

    def summed_weights(self) -> tuple[str, ...]:
        """The weights whose gradient each rank finds a part of: those that are used on cut activations."""
        both = sorted(name for name, cut in self._uses.items() if len(cut) > 1)
        if both:
            raise TesseraError(
                "a weight is used on activations that are cut and on ones that are whole on every rank",
                got=both[0],
                do="give the two uses modules of their own",
            )
        return tuple(name for name, cut in self._uses.items() if cut == {True})

    def _use(self, weights: Iterable[str], of: Value | Kind) -> None:
        whole = of == "whole" if isinstance(of, str) else of.has("whole")
        for name in weights:
            self._uses.setdefault(name, set()).add(not whole)

    def placed(self, kind: Kind, shape: Sequence[int]) -> Placed:
        return Placed.of(kind, self.settings.mesh, (shape[0], *shape[2:]))
