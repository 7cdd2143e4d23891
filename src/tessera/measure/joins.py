"""Named functions that join the samples of several ranks into one series, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tessera.errors import TesseraError

Rows = NDArray[np.float64]

JOINS: dict[str, Callable[[Rows], Rows]] = {
    "max over ranks": lambda rows: rows.max(axis=0),
    "min over ranks": lambda rows: rows.min(axis=0),
    "mean over ranks": lambda rows: rows.mean(axis=0),
    "sum over ranks": lambda rows: rows.sum(axis=0),
}
DEFAULT_JOIN = "max over ranks"


def join_ranks(rows: Sequence[Sequence[float]], by: str = DEFAULT_JOIN) -> tuple[float, ...]:
    """One value per iteration from the values of all ranks; an iteration is as slow as its slowest rank.

    >>> join_ranks([(1.0, 5.0), (2.0, 4.0)])
    (2.0, 5.0)
    """
    if by not in JOINS:
        raise TesseraError("unknown way to join ranks", got=by, allowed=JOINS)
    lengths = sorted({len(row) for row in rows})
    if len(lengths) != 1:
        raise TesseraError("ranks took unequal numbers of samples", got=lengths or None, allowed="the same number each")
    return tuple(JOINS[by](np.asarray(rows, dtype=np.float64)).tolist())
