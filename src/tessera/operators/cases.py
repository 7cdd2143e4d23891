"""From what a user asks for to the cases that answer it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.errors import TesseraError
from tessera.operators.backends import BACKENDS, entry
from tessera.operators.catalogue import find
from tessera.operators.catalogue.fused import fusions
from tessera.operators.operator import SIZES, Operator
from tessera.operators.skews import ALL_SKEWS
from tessera.results.record import Case

PASSES = ("forward", "backward", "both")
DTYPES = ("float32", "float64", "bfloat16", "float16")
CACHES = ("hot", "cold")
FUSED = ("compile", "library")
# what a record of an operator may hold
METRICS = (
    "time", "floor", "p25", "p90", "p99", "mad", "cpu_time", "page_faults", "disturbed", "gflops", "bandwidth", "work",
    "roofline", "allocated", "peak_allocated", "peak_resident", "unfused", "kept", "gain", "gain_low", "gain_high",
    "allocator_share",
)  # fmt: skip


def cases(
    names: Sequence[str] = (),
    *,
    category: Sequence[str] = (),
    backend: Sequence[str] = ("torch",),
    size: Sequence[str] = ("small", "medium"),
    passes: Sequence[str] = ("forward", "backward"),
    dtype: Sequence[str] = ("float32",),
    skew: Sequence[str] = ("",),
    cache: Sequence[str] = ("hot",),
    fusion: Sequence[str] = FUSED,
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> list[Case]:
    """Every operator that matches, on every backend, in every size, pass, dtype and skew.

    An operator or a backend that does not differentiate has a forward pass only. One of the category `fused` is held
    against its own steps, in every way of `fusion` that there is, where torch is the only backend; of several backends,
    and in no way of fusion, each runs the steps. `inputs` replaces shapes and arguments by name; what is as usual (no
    skew, a hot cache, default inputs) is not written into the case.

    >>> [case.key for case in cases(["add"], size=["small"], passes=["forward"])]
    ['ops/add[backend=torch,dtype=float32,pass=forward,seed=0,size=small]']
    """
    axes = {
        "backend": (backend, BACKENDS),
        "size": (size, SIZES),
        "pass": (passes, PASSES),
        "dtype": (dtype, DTYPES),
        "skew": (skew, ("", *ALL_SKEWS)),
        "cache": (cache, CACHES),
        "fusion": (fusion, FUSED),
    }
    for what, (got, allowed) in axes.items():
        for value in got:
            if value not in allowed:
                raise TesseraError(f"unknown {what}", got=value, allowed=[a for a in allowed if a])
    if seed < 0:
        raise TesseraError("seed", got=seed, allowed="0 or more")
    changes = {}
    if inputs:
        changes["inputs"] = {name: list(v) if isinstance(v, tuple) else v for name, v in inputs.items()}
    found = []
    for operator in find(names, category):
        for one in size:
            operator.inputs(one, inputs)  # a name it does not have is refused here, before anything runs
        for where in backend:
            which_passes = _passes(operator, where, passes)
            for one, which, kind, bent, warm in itertools.product(size, which_passes, dtype, skew, cache):
                params = {"backend": where, "size": one, "pass": which, "dtype": kind, "seed": seed, **changes}
                params |= {name: value for name, value in (("skew", bent), ("cache", warm)) if value not in ("", "hot")}
                for way in _fusions(operator, backend, which, fusion):
                    found.append(Case(feature="ops", name=operator.name, params={**params, **way}))
    return found


def _passes(operator: Operator, backend: str, asked: Sequence[str]) -> Sequence[str]:
    """The passes that the operator has there; when none of those asked for, all of them, to be refused one by one."""
    if operator.differentiable and entry(backend).differentiates:
        return asked
    return [which for which in asked if which == "forward"] or asked


def _fusions(
    operator: Operator, backend: Sequence[str], which: str, asked: Sequence[str]
) -> Sequence[Mapping[str, str]]:
    """A fused operator on torch alone is measured against its own steps, in every way that it can be fused."""
    ways = fusions(operator.name) if operator.category == "fused" else ()
    if not ways or not asked or set(backend) != {"torch"} or which != "forward":
        return ({},)
    return [{"fusion": way} for way in ways if way in asked]
