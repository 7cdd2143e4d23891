"""A chain of matrix products in a file, opened with any schedule; rows of its input decide about FLOPs per byte."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tessera.phased import Event, MatrixChain, PhasedModel, write_weights

# of these, the rows at which loading and computing take most nearly equally long; by the quickest of some passes
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
TRIALS = 3
# what copies nothing, and is compared where the file is in the page cache
IN_PLACE = {
    "overlapped, mapped": {"schedule": "overlapped", "store": "mapped"},
    "resident": {"schedule": "resident"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`layers` square weights of float32 in a file; each is a phase, and three of them are the working memory."""

    size: int
    layers: int
    path: Path

    @property
    def nbytes(self) -> int:
        return 4 * self.size**2 * self.layers

    @property
    def budget(self) -> int:
        return 3 * (4 * self.size**2 + (1 << 16))

    def open(self, schedule: str, *, rows: int, cold: bool, **options: Any) -> PhasedModel:
        with torch.device("meta"):
            bare = MatrixChain(self.size, self.layers)
        return PhasedModel(
            bare,
            path=self.path,
            schedule=schedule,
            cold=cold,
            phases=[f"layers.{number}" for number in range(self.layers)],
            input_shape=(rows, self.size),
            budget=self.budget,
            keep=False,
            **options,
        )

    def rows(self, count: int) -> Tensor:
        return torch.randn(count, self.size, generator=torch.Generator().manual_seed(count))

    @contextmanager
    def opened(self, ways: Mapping[str, Mapping[str, Any]], **options: Any) -> Iterator[dict[str, PhasedModel]]:
        """Several ways to run it at once: by name, with what is particular to each."""
        with ExitStack() as stack:
            yield {name: stack.enter_context(self.open(**{**options, **own})) for name, own in ways.items()}


@contextmanager
def chain(size: int, layers: int) -> Iterator[Chain]:
    """A chain with random weights, in a file that goes when the block ends."""
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        path = Path(folder) / "chain.safetensors"
        write_weights(path, MatrixChain(size, layers))
        yield Chain(size=size, layers=layers, path=path)


def seconds(events: Sequence[Event], kind: str) -> list[float]:
    """Of each phase's events of a kind, in the order of the phases."""
    return [event.seconds for event in sorted(events, key=lambda e: e.phase) if event.kind == kind]


def apart(model: PhasedModel, x: Tensor) -> tuple[list[float], list[float]]:
    """Seconds that each phase loads and computes when nothing overlaps: of a sequential model."""
    model(x)
    return seconds(model.events, "load"), seconds(model.events, "compute")


def ideal(model: PhasedModel, x: Tensor) -> float:
    """The sum over phases of the longer of loading and computing, each by itself."""
    loads, computes = apart(model, x)
    return sum(max(pair) for pair in zip(loads, computes, strict=True))


def balanced_rows(chain: Chain, *, cold: bool) -> int:
    """The rows with which loading and computing a phase take equally long on this machine, now."""
    apartness: dict[int, float] = {}
    with chain.open("sequential", rows=1, cold=cold) as model:
        for rows in ROWS:
            x = chain.rows(rows)
            model(x)
            loads, computes = zip(*(map(sum, apart(model, x)) for _ in range(TRIALS)), strict=True)
            apartness[rows] = abs(math.log(min(loads) / min(computes)))
            if min(computes) > 2 * min(loads):
                break
    return min(apartness, key=lambda rows: apartness[rows])
