"""A pass that was checked and can be timed, wherever its operator comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.operators import sources
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Request
from tessera.operators.operator import Call
from tessera.operators.preparation import prepare
from tessera.operators.views import view_notes
from tessera.results.record import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """One pass: how to call it, and what one call computes and moves.

    `before` is to be called before each sample, where calls leave something behind that has to be put back. `notes`
    go into the record.
    """

    call: Callable[[], Any]
    dtype: str
    flops: float
    moved: float
    version: str = "1"
    before: Callable[[], Any] | None = None
    notes: tuple[str, ...] = ()


def make_ready(case: Case) -> Ready:
    """The pass of a case, of the catalogue or of another source."""
    source = sources.source_of(case)
    if source is not None:
        return sources.ready(source, case)
    request, prepared = prepare(case)
    operator = request.operator
    flops, moved = work_of(request, prepared.outputs)
    return Ready(
        call=prepared.call,
        dtype=request.dtype,
        flops=flops,
        moved=moved,
        version=operator.version,
        notes=view_notes(operator, flops, moved, shared=prepared.shared),
    )


def work_of(request: Request, outputs: Sequence[Array]) -> tuple[float, float]:
    """FLOPs and bytes of a request's pass; 16-bit values are kept wider here than where they are computed."""
    narrow = request.dtype in ("bfloat16", "float16")

    def nbytes(array: Array) -> int:
        return int(array.nbytes) // 2 if narrow and array.dtype.kind == "f" else int(array.nbytes)

    call = Call(
        shapes={name: one.shape for name, one in request.inputs.items()},
        attributes=request.attributes,
        outputs=tuple(out.shape for out in outputs),
        read={name: nbytes(array) for name, array in request.arrays.items()},
        written=tuple(nbytes(out) for out in outputs),
    )
    return request.operator.work(call, request.which)
