"""A chain of matrix products with weights in a file, run with any schedule; FLOPs per byte grow with the input rows."""

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

# candidates for the number of rows at which loading and computing take equally long
ROW_CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
BALANCE_TRIALS = 3
# variants that do not copy weights, compared if the file is in the page cache
VARIANTS_WITHOUT_COPY = {
    "overlapped, mapped": {"schedule": "overlapped", "store": "mapped"},
    "resident": {"schedule": "resident"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A file of `layers` square float32 weights; each weight is a phase, and working memory holds three weights."""

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
            skeleton = MatrixChain(self.size, self.layers)
        return PhasedModel(
            skeleton,
            path=self.path,
            schedule=schedule,
            cold=cold,
            phases=[f"layers.{number}" for number in range(self.layers)],
            input_shape=(rows, self.size),
            budget=self.budget,
            keep=False,
            **options,
        )

    def draw_rows(self, count: int) -> Tensor:
        return torch.randn(count, self.size, generator=torch.Generator().manual_seed(count))

    @contextmanager
    def open_variants(
        self, variants: Mapping[str, Mapping[str, Any]], **options: Any
    ) -> Iterator[dict[str, PhasedModel]]:
        """Open several variants of the chain at once; `variants` maps names to options of `PhasedModel`."""
        with ExitStack() as stack:
            yield {name: stack.enter_context(self.open(**{**options, **own})) for name, own in variants.items()}


@contextmanager
def write_chain(size: int, layers: int) -> Iterator[Chain]:
    """Write a chain with random weights to a file that is removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        path = Path(folder) / "chain.safetensors"
        write_weights(path, MatrixChain(size, layers))
        yield Chain(size=size, layers=layers, path=path)


def list_seconds(events: Sequence[Event], kind: str) -> list[float]:
    """Return the durations of the events of a kind in seconds, in the order of their phases."""
    return [event.seconds for event in sorted(events, key=lambda e: e.phase) if event.kind == kind]


def measure_isolated(model: PhasedModel, x: Tensor) -> tuple[list[float], list[float]]:
    """Return the load times and the compute times of the phases, in seconds, in one pass of a sequential model."""
    model(x)
    return list_seconds(model.events, "load"), list_seconds(model.events, "compute")


def compute_ideal(model: PhasedModel, x: Tensor) -> float:
    """Return the ideal seconds of a pass: the sum over phases of the longer of loading and computing."""
    loads, computes = measure_isolated(model, x)
    return sum(max(pair) for pair in zip(loads, computes, strict=True))


def find_balanced_rows(chain: Chain, *, cold: bool) -> int:
    """Return the number of rows at which loading and computing a phase take equally long on this machine."""
    imbalance: dict[int, float] = {}
    with chain.open("sequential", rows=1, cold=cold) as model:
        for rows in ROW_CANDIDATES:
            x = chain.draw_rows(rows)
            model(x)
            loads, computes = zip(*(map(sum, measure_isolated(model, x)) for _ in range(BALANCE_TRIALS)), strict=True)
            imbalance[rows] = abs(math.log(min(loads) / min(computes)))
            if min(computes) > 2 * min(loads):
                break
    return min(imbalance, key=lambda rows: imbalance[rows])
