"""A pass that was checked and can be timed, wherever its operator comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.operators import sources
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.operator import Call
from tessera.operators.preparation import prepare, undifferentiated
from tessera.operators.views import view_notes
from tessera.results.record import Case

UNCOUNTED = "no rates: FLOPs and bytes of inputs of these shapes are not known"
UNDIFFERENCED = "gradients checked without the skew: on its values a difference gives none"


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
    flops, moved, notes = _counted(request, prepared)
    return Ready(
        call=prepared.call,
        dtype=request.dtype,
        flops=flops,
        moved=moved,
        version=operator.version,
        notes=(*notes, UNDIFFERENCED) if undifferentiated(case) else notes,
    )


def _counted(request: Request, prepared: Prepared) -> tuple[float, float, tuple[str, ...]]:
    """FLOPs, bytes, and what there is to say about them: a user's shapes may be others than they are counted from."""
    try:
        flops, moved = work_of(request, prepared.outputs)
    except (ValueError, LookupError, ZeroDivisionError, StopIteration):
        return 0.0, 0.0, (UNCOUNTED,)
    return flops, moved, view_notes(request.operator, flops, moved, shared=prepared.shared)


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
