"""What is run: the network of a case, its mini-batches, its weights in a file, and the same in plain torch."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tessera.models import build, lay_out
from tessera.models.weights import read_weights
from tessera.phased.cases import CHAIN
from tessera.phased.chain import MatrixChain
from tessera.phased.network.skeleton import Skeleton, skeleton_of
from tessera.phased.store.weights_file import tensors_of
from tessera.phased.writing import nameless_weights
from tessera.results.record import Case

DRAWN = 4  # mini-batches that differ; a longer step goes through them again, for hundreds would fill the memory
COMPUTED = {"float16": torch.float32, "bfloat16": torch.float32}  # 16 bits are for storing and streaming


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network by name, the shape of a mini-batch, how many of them a step has, and how its weights are stored.

    Without a dtype its weights are stored as the file that was given has them.
    """

    name: str
    input_shape: tuple[int, ...]
    batches: int
    dtype: str | None
    weights: str | None = None
    num_layers: int = 0

    @classmethod
    def of(cls, case: Case) -> Workload:
        """The workload of a case."""
        params: Any = case.params
        size = params["dsize"] if case.name == CHAIN else params["image_size"]
        return cls(
            name=case.name,
            input_shape=(params["batch_size"], *((size, size) if case.name == CHAIN else (3, size, size))),
            batches=params["batches_per_step"],
            dtype=params.get("dtype"),
            weights=params.get("weights"),
            num_layers=params.get("num_layers", 0),
        )

    @property
    def items(self) -> int:
        """Matrices or images of one step."""
        return self.input_shape[0] * self.batches

    @property
    def computed(self) -> torch.dtype:
        """The dtype of inputs and arithmetic."""
        if self.dtype is None:
            kinds = {tensor.dtype for tensor in tensors_of(Path(self.weights or "")).values()}
            return (
                torch.float64
                if {kind for kind in kinds if kind.is_floating_point} == {torch.float64}
                else torch.float32
            )
        stored: torch.dtype = getattr(torch, self.dtype)
        return COMPUTED.get(self.dtype, stored)

    def inputs(self) -> list[Tensor]:
        """The mini-batches of a step."""
        generator = torch.Generator().manual_seed(0)
        count = min(DRAWN, self.batches)
        drawn = [torch.randn(self.input_shape, generator=generator).to(self.computed) for _ in range(count)]
        return [drawn[number % count] for number in range(self.batches)]

    def phases(self) -> list[str] | None:
        """The modules at which phases begin: every layer of the chain; of a network they are found."""
        return [f"layers.{number}" for number in range(self.num_layers)] if self.name == CHAIN else None

    def skeleton(self) -> nn.Module:
        """The network without values, in the dtype that it is computed in."""
        if self.name != CHAIN:  # .to("meta") would untie weights, and empty buffers that no file holds
            return _converted(skeleton_of(lay_out(self.name).eval()), self.computed)
        with torch.device("meta"):
            return MatrixChain(self.input_shape[-1], self.num_layers).to(self.computed)

    def plain(self) -> nn.Module:
        """The network as plain torch runs it: all values in memory, rounded to what is stored."""
        if self.name == CHAIN:
            network = self.skeleton().to_empty(device="cpu")
            network.load_state_dict({name: self._drawn(name) for name in network.state_dict()})
        elif self.weights is None:
            network = build(self.name)
        else:  # the engine has seen that nothing is missing; counters, which it leaves out, are not read either
            network = lay_out(self.name).to(self.computed).eval()
            if any(weight.is_meta for weight in network.parameters()):
                network.to_empty(device="cpu")
            network.load_state_dict(read_weights(Path(self.weights)), strict=False)
        if self.dtype is not None:
            for value in network.state_dict().values():  # not buffers that no file holds: they are not stored
                if value.is_floating_point():
                    value.copy_(value.to(getattr(torch, self.dtype)))
        return network.to(self.computed)

    @contextmanager
    def file(self) -> Iterator[Path]:
        """The file of its weights: the one that was given, or one that goes with this process, however it ends."""
        if self.weights is not None:
            yield Path(self.weights)
            return
        # of the chain one layer at a time: it may be larger than the memory
        values = self._drawn if self.name == CHAIN else None
        model = self.skeleton() if self.name == CHAIN else build(self.name)
        with nameless_weights(model, values, dtype=self.dtype) as path:
            yield path

    def _drawn(self, name: str) -> Tensor:
        """A layer of the chain, the same each time; scaled so that numbers stay in range over any depth."""
        size = self.input_shape[-1]
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        drawn: Tensor = torch.randn(size, size, generator=generator) * size**-0.5
        return drawn


def _converted(bones: Skeleton, dtype: torch.dtype) -> nn.Module:
    """A network without values in another dtype; a buffer of several names, of which torch makes several, is one."""
    bones.model.to(dtype)
    for first, *others in bones.names:
        for name in others:
            owner, _, own = name.rpartition(".")
            held = bones.model.get_submodule(owner)._buffers
            if own in held:
                held[own] = bones.tensor(first)
    return bones.model
