"""A chain of matrix products in a file, opened with any schedule; rows of its input decide about FLOPs per byte."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tessera.phased import Event, MatrixChain, PhasedModel, write_weights

TRIALS = 4  # of finding the rows at which loading and computing take equally long


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`layers` square weights of float32 in a file; each is a phase, and three of them are the working memory."""

    size: int
    layers: int
    path: Path

    @property
    def nbytes(self) -> int:
        return 4 * self.size**2 * self.layers

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
            budget=3 * (4 * self.size**2 + (1 << 16)),
            keep=False,
            **options,
        )

    def rows(self, count: int) -> Tensor:
        return torch.randn(count, self.size, generator=torch.Generator().manual_seed(count))


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


def balanced_rows(chain: Chain, *, cold: bool, rows: int = 64) -> int:
    """The rows with which loading and computing a phase take equally long on this machine, now."""
    with chain.open("sequential", rows=rows, cold=cold) as model:
        for _ in range(TRIALS):
            x = chain.rows(rows)
            model(x)
            loads, computes = apart(model, x)
            rows = max(1, round(rows * sum(loads) / sum(computes)))
    return rows


@contextmanager
def opened(chain: Chain, schedules: Sequence[str], **options: Any) -> Iterator[dict[str, PhasedModel]]:
    """Several schedules of one chain at once."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(chain.open(name, **options)) for name in schedules}
