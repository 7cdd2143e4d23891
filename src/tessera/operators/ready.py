"""A pass that was checked and can be timed, wherever its operator comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessera.operators import sources
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.operator import Call
from tessera.operators.preparation import prepare
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
    flops, moved = request.operator.work(_call(request, prepared), request.which)
    version = request.operator.version
    return Ready(call=prepared.call, dtype=request.dtype, flops=flops, moved=moved, version=version)


def _call(request: Request, prepared: Prepared) -> Call:
    """The call as its work is counted; 16-bit values are kept wider here than where they are computed."""
    narrow = request.dtype in ("bfloat16", "float16")

    def nbytes(array: Any) -> int:
        return int(array.nbytes) // 2 if narrow and array.dtype.kind == "f" else int(array.nbytes)

    return Call(
        shapes={name: one.shape for name, one in request.inputs.items()},
        attributes=request.attributes,
        outputs=tuple(out.shape for out in prepared.outputs),
        read={name: nbytes(array) for name, array in request.arrays.items()},
        written=tuple(nbytes(out) for out in prepared.outputs),
    )
