"""How long a halo case may take before it counts as stuck."""

from __future__ import annotations

from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.spatial.bench.problem import Borders, Problem, ways

# Generous on purpose: what is slow is no fault, and what never ends is ended all the same.
START = 600.0  # seconds to start ranks and to make buffers and connections, on a busy machine
FLOPS = 1e9  # a second: slower than any core convolves
BYTES = 1e7  # a second: slower than any network
TURN = 1.0  # seconds of a round in which ranks wait for one another's turns on a core


def time_limit(case: Case, sampling: Sampling) -> float | None:
    """Seconds for one launch of a case; None where its budget limits it.

    >>> from tessera.spatial.cases import cases
    >>> (case,) = cases(["exchange"], image_size=[1024], num_spatial_parts=[2], slice_method=["vertical"])
    >>> round(time_limit(case, Sampling(warmup=10, iterations=100)))
    710
    """
    if case.name == "validate":
        rounds = int(case.params["rounds"])
    elif sampling.iterations is not None:
        rounds = (sampling.warmup or 0) + sampling.iterations
    else:
        return None
    problem = Problem.of(case.params)
    seconds = ways(case.params) * Borders.of(problem).total / BYTES
    if case.name != "exchange":
        seconds += problem.flops / FLOPS
    return START + rounds * (TURN + _passes(case, problem) * seconds)


def _passes(case: Case, problem: Problem) -> int:
    """How often the convolution is gone through in a round, forward or backward, or the exchange alone."""
    if case.name == "exchange":
        return 2  # with its adjoint, and without
    if case.name == "compute":
        return 6 * (3 if case.params.get("backward") else 1)  # cut, alone, one after the other, uncut, in two layouts
    # Every rank computes the uncut convolution, and of its squares; then each overlap in two layouts.
    return 3 * (2 * problem.parts + 2 * len(case.params["overlap"]))
