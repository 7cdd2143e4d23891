"""The time limit of a halo case, after which the case is stopped as hung."""

from __future__ import annotations

from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.spatial.cases import NETWORK
from tessera.spatial.problem import ExchangeVolume, HaloProblem, count_directions

# The limits are generous: a slow case must not fail, but a case that never ends must be stopped.
START_SECONDS = 600.0  # to start ranks and to allocate buffers and connections on a busy machine
MIN_FLOPS_PER_SECOND = 1e9  # lower bound of a core's rate in a convolution
MIN_BYTES_PER_SECOND = 1e7  # lower bound of a network's rate
MAX_STEP_SECONDS = 60.0  # of a network, split and unsplit
MAX_TURN_SECONDS = 1.0  # delay of a round if ranks share a core


def compute_time_limit(case: Case, sampling: Sampling) -> float | None:
    """Return the time limit of one launch of a case in seconds; None if the sampling budget limits the time already.

    >>> from tessera.spatial.cases import cases
    >>> (case,) = cases(["exchange"], image_size=[1024], num_spatial_parts=[2], slice_method=["vertical"])
    >>> round(compute_time_limit(case, Sampling(warmup=10, iterations=100)))
    710
    """
    if case.name == "validate":
        rounds = int(case.params["rounds"])
    elif sampling.iterations is not None:
        rounds = (sampling.warmup or 0) + sampling.iterations
    else:
        return None
    if case.name == NETWORK:
        return START_SECONDS + rounds * MAX_STEP_SECONDS
    problem = HaloProblem.of(case.params)
    layers = problem.list_layers(int(case.params.get("fused_layers", 1)))
    total = sum(ExchangeVolume.of(layer).total for layer in layers)
    seconds = count_directions(case.params) * total / MIN_BYTES_PER_SECOND
    if case.name != "exchange":
        seconds += sum(layer.flops for layer in layers) / MIN_FLOPS_PER_SECOND
    return START_SECONDS + rounds * (MAX_TURN_SECONDS + _count_passes(case, problem) * seconds)


def _count_passes(case: Case, problem: HaloProblem) -> int:
    """Return the number of passes in a round. A pass is a convolution, forward or backward, or an exchange."""
    if case.name == "exchange":
        return 2  # with its adjoint, and without
    if case.name == "compute":
        # split, convolution alone, sequential, unsplit, in two layouts
        return 6 * (3 if case.params.get("backward") else 1)
    # Every rank computes the unsplit convolution and the convolution of squares, and each overlap mode in two layouts.
    return 3 * (2 * problem.parts + 2 * len(case.params["overlap"]))
