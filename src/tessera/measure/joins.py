"""Join the samples of several ranks into one series, iteration by iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tessera.errors import TesseraError
from tessera.measure.samples import Samples
from tessera.measure.statistics import estimate_median

Rows = NDArray[np.float64]

JOIN_RULES: dict[str, Callable[[Rows], Rows]] = {
    "max over ranks": lambda rows: rows.max(axis=0),
    "sum over ranks": lambda rows: rows.sum(axis=0),
}
DEFAULT_JOIN_RULE = "max over ranks"


def join_ranks(rows: Sequence[Sequence[float]], by: str = DEFAULT_JOIN_RULE) -> tuple[float, ...]:
    """Return one value per iteration from `rows`, the values of each rank; by default the value of the slowest rank.

    >>> join_ranks([(1.0, 5.0), (2.0, 4.0)])
    (2.0, 5.0)
    """
    lengths = sorted({len(row) for row in rows})
    if len(lengths) != 1:
        raise TesseraError(
            "ranks took unequal numbers of samples", got=lengths or None, allowed="the same number on every rank"
        )
    return tuple(JOIN_RULES[by](np.asarray(rows, dtype=np.float64)).tolist())


def join_samples(samples: list[Samples]) -> Samples:
    """Join the samples of several ranks into one series, and keep the values of each rank in `ranks`."""
    rows = tuple(s.values for s in samples)
    values = join_ranks(rows)
    interval = estimate_median(values).relative
    return replace(
        samples[0],
        values=values,
        cpu=join_ranks([s.cpu for s in samples], "sum over ranks"),
        switches=tuple(max(column) for column in zip(*(s.switches for s in samples), strict=True)),
        steal=tuple(max(column) for column in zip(*(s.steal for s in samples), strict=True)),
        interval=interval if math.isfinite(interval) else None,
        ranks=rows,
        joined_by=DEFAULT_JOIN_RULE,
    )
