"""A link from measured transfers: the latency and the bandwidth that fit them best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tessera.errors import TesseraError
from tessera.machine.machine import Link


def fit_link(transfers: Iterable[Mapping[str, float]]) -> Link:
    """Fit seconds = latency + bytes / bandwidth to measured transfers (`bytes` and `seconds` each).

    Least squares of the *relative* errors: transfers span microseconds to seconds, and with plain least
    squares the largest alone would decide while the latency, which the small ones show, would drown.

    >>> fit_link([{"bytes": 0, "seconds": 2e-6}, {"bytes": 1e6, "seconds": 102e-6}])
    Link(bandwidth=(10000000000.0,), latency=2e-06)
    """
    points = [(float(t["bytes"]), float(t["seconds"])) for t in transfers]
    for size, seconds in points:
        if not (size >= 0 and seconds > 0 and math.isfinite(size) and math.isfinite(seconds)):
            raise TesseraError("a transfer has bytes and a positive time", got=(size, seconds))
    if len({size for size, _ in points}) < 2:
        raise TesseraError("a link needs transfers of two sizes or more", got=len(points))

    # Weighted by 1 / seconds^2: the error of each point counts relative to its own time.
    weighted = [(1 / seconds**2, size, seconds) for size, seconds in points]
    total = sum(w for w, _, _ in weighted)
    mean_size = sum(w * size for w, size, _ in weighted) / total
    mean_time = sum(w * seconds for w, _, seconds in weighted) / total
    spread = sum(w * (size - mean_size) ** 2 for w, size, _ in weighted)
    slope = sum(w * (size - mean_size) * (seconds - mean_time) for w, size, seconds in weighted) / spread
    latency = mean_time - slope * mean_size
    if latency < 0:  # noise: the best fit that is physical passes through the origin
        latency = 0.0
        squares = sum(w * size**2 for w, size, _ in weighted)
        slope = sum(w * size * seconds for w, size, seconds in weighted) / squares
    if slope <= 0:
        raise TesseraError("larger transfers took no longer than small ones", do="measure larger sizes")
    return Link(bandwidth=(1 / slope,), latency=latency)
