"""What the operators of linear algebra share: how they are called, the sizes of their matrices, their FLOPs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.operators.draws import Draw
from tessera.operators.operator import Call, Input, Operator, by_size

Sizes = Mapping[str, Mapping[str, Input]]

# sides of matrices that are only read, that are factored in about n^3 steps, and in many times as many
READ = (64, 1024, 4096)
DIRECT = (32, 512, 2048)
ITERATIVE = (16, 128, 512)
TALL = ((64, 16), (512, 128), (2048, 512))
# many small ones, (count, side): what the loop over them costs
BATCH = ((64, 8), (4096, 8), (65536, 8))


def square(draw: Draw, sides: tuple[int, int, int] = DIRECT) -> Sizes:
    return by_size(lambda n: {"data": Input(shape=(n, n), draw=draw)}, *sides)


def batch(draw: Draw) -> Sizes:
    return by_size(lambda count, n: {"data": Input(shape=(count, n, n), draw=draw)}, *BATCH)


def cubed(times: float) -> Callable[[Call], float]:
    """So many times m n^2 for each matrix of m rows and n columns."""

    def flops(call: Call) -> float:
        *many, rows, columns = call.shapes["data"]
        return times * math.prod(many) * rows * columns**2

    return flops


def linalg(name: str, reference: str, sizes: Sizes, flops: Any, torch: str = "", **others: Any) -> Operator:
    """An operator whose call is that of its name on one matrix, unless it is given.

    FLOPs are those of the textbook algorithm (Golub and Van Loan); iterations are counted as they usually take.
    """
    return Operator(
        name=name,
        category="linear_algebra",
        torch=torch or f"torch.{name.replace('linalg_', 'linalg.')}(data)",
        reference=reference,
        sizes=sizes,
        flops=flops,
        dtypes=("float32", "float64"),
        **others,
    )
