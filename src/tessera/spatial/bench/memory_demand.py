"""The memory that a halo case needs, estimated before it is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.errors import TesseraError
from tessera.measure.memory_limits import get_available_bytes
from tessera.report.figures import format_bytes
from tessera.results.record import Case
from tessera.spatial.problem import DTYPES, HaloProblem


def estimate_memory(case: Case) -> int:
    """Return a lower bound of the bytes that all ranks of a case need together.

    `exchange` holds the image; `compute` the image and the output; `validate` computes the unsplit convolution on every
    rank, in double precision for comparison.

    >>> from tessera.spatial.cases import cases
    >>> (case,) = cases(["exchange"], image_size=[1024], in_channels=[16])
    >>> estimate_memory(case) >> 20
    64
    """
    problem = HaloProblem.of(case.params)
    if case.name == "exchange":
        pixels = problem.batch
        for size in problem.image:
            pixels *= size
        return pixels * problem.pixel_bytes
    if case.name == "compute":
        return problem.footprint * (2 if case.params.get("backward") else 1)
    return problem.parts * problem.footprint * DTYPES["float64"] // DTYPES[problem.dtype]


def check_memory(selected: Sequence[Case], local_share: float = 1.0) -> None:
    """Refuse a case that needs more memory than this host has left; `local_share` of the ranks are on this host."""
    case = max(selected, key=estimate_memory)
    needed, available = int(estimate_memory(case) * local_share), get_available_bytes()
    if needed > available:
        raise TesseraError(
            f"{case.name} {case.params['image_size']}: not enough memory",
            got=f"a demand of {format_bytes(needed)} or more",
            allowed=f"{format_bytes(available)} available here",
            do="use a smaller --image-size, --batch-size or fewer channels",
        )
