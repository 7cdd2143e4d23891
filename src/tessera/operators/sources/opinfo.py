"""Operators from torch's OpInfo database: every operator that torch tests, on its own samples made larger.

A sample is measured as torch's tests would call it. Before that its outputs are held against the entry's own NumPy
reference where it has one, otherwise against the same operator in double precision; gradients always against those
in double precision. The record's notes say which sample it was and what it was held against.
"""

from __future__ import annotations

import fnmatch
import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera.errors import Refused, TesseraError, did_you_mean
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared
from tessera.operators.cases import DTYPES, PASSES
from tessera.operators.check import flat
from tessera.operators.ready import Ready
from tessera.operators.sources.opinfo_index import index, op_db
from tessera.results.record import Case

if TYPE_CHECKING:
    from tessera.operators.sources.torch_call import TorchCall

SIZES = ("small", "medium")
AGAINST_DOUBLE = "checked against the same operator in double precision"
AGAINST_REFERENCE = "checked against OpInfo's reference"

# Singular and eigenvectors have any sign, or phase: what is held against double precision instead
_KEPT = "[..., :out[1].shape[-1]]"
UNIQUE = {
    "linalg.eig": "(out[0], np.abs(out[1]))",
    "linalg.eigh": "(out[0], np.abs(out[1]))",
    "linalg.svd": f"(out[1], np.abs(out[0]{_KEPT}), np.abs(out[2].swapaxes(-1, -2){_KEPT}))",
    "svd": f"(out[1], np.abs(out[0]{_KEPT}), np.abs(out[2]{_KEPT}))",
}


def find(patterns: Sequence[str]) -> list[str]:
    """Entries by name or glob; an unknown name is refused with the nearest ones."""
    found: dict[str, None] = {}
    for pattern in patterns:
        names = [pattern] if pattern in index() else fnmatch.filter(index(), pattern)
        if not names:
            do = did_you_mean(pattern, index(), "globs are allowed")
            raise TesseraError("OpInfo has no such operator", got=pattern, do=do)
        found |= dict.fromkeys(names)
    return list(found)


def cases(
    names: Sequence[str] = ("*",),
    *,
    size: Sequence[str] = SIZES,
    passes: Sequence[str] = ("forward", "backward"),
    dtype: Sequence[str] = ("float32",),
    seed: int = 0,
) -> list[Case]:
    """Every entry that matches, in every size, pass and dtype.

    An entry that does not differentiate has a forward pass only; one without floating-point numbers its own dtype.

    >>> [case.key for case in cases(["linalg.det"], size=["small"], passes=["forward"])]
    ['ops/linalg.det[backend=torch,dtype=float32,pass=forward,seed=0,size=small,source=opinfo]']
    """
    for what, got, allowed in (("size", size, SIZES), ("pass", passes, PASSES), ("dtype", dtype, DTYPES)):
        for value in got:
            if value not in allowed:
                raise TesseraError(f"unknown {what} of an OpInfo case", got=value, allowed=allowed)
    found = []
    for name in find(names):
        entry = index()[name]
        kinds = [entry.dtype] if entry.dtype else dtype
        ways = passes if entry.differentiable else [which for which in passes if which == "forward"] or passes
        for one, which, kind in itertools.product(size, ways, kinds):
            params = {"backend": "torch", "source": "opinfo", "size": one, "pass": which, "dtype": kind, "seed": seed}
            found.append(Case(feature="ops", name=name, params=params))
    return found


def ready(case: Case) -> Ready:
    """The largest sample of the case's entry that runs, checked."""
    from tessera.operators.attempt import attempting
    from tessera.operators.sources import torch_call
    from tessera.operators.sources.samples import largest

    size, which, dtype, seed = (case.params[name] for name in ("size", "pass", "dtype", "seed"))
    entry = _supporting(case.name, which, dtype)
    with _quiet():
        sample = largest(entry, case.name, size=size, which=which, dtype=dtype, seed=seed)
        call = sample.call
        # torch itself refuses some gradients, for the values they depend on
        with attempting(f"{case.name} does not run"):
            found = call.prepare(which, dtype)
            checked = _check(entry, call, found, which=which, dtype=dtype)
        shapes = ", ".join(f"{tuple(tensor.shape)}" for tensor in call.tensors().values()) or "no tensors"
        lengths = ", ".join(map(str, sample.lengths))
        return Ready(
            call=found.call,
            dtype=dtype,
            flops=torch_call.flops(found.call),
            moved=torch_call.moved(call, found, which),
            notes=(f"OpInfo sample {sample.number}, of lengths {lengths}: {shapes}", checked),
        )


def _supporting(name: str, which: str, dtype: str) -> Any:
    """The entry, if it has the pass and dtype."""
    entries = op_db()
    if name not in entries:
        raise Refused("OpInfo has no such operator in this version of torch", got=name)
    entry = entries[name]
    if which != "forward" and not entry.supports_autograd:
        raise Refused(f"{name} does not differentiate", got=which, allowed="forward")
    kinds = entry.dtypes if which == "forward" else entry.backward_dtypes
    if not kinds:
        raise Refused(f"{name} does not run on a CPU")
    names = sorted(str(kind).removeprefix("torch.") for kind in kinds)
    if dtype not in names:
        raise Refused(f"{name} has no such dtype on a CPU", got=dtype, allowed=names)
    return entry


def _check(entry: Any, call: TorchCall, found: Prepared, *, which: str, dtype: str) -> str:
    """Hold a pass against what it should give, and say what that was."""
    from tessera.operators.sources.double_precision import check, check_against
    from tessera.operators.sources.torch_call import is_random

    if entry.has_nondeterministic_output or is_random(call):
        again = call.prepare("forward", dtype)
        check(call.name, found.outputs, again.outputs, dtype=dtype, values=False)
        return "its numbers are random: checked by shape"
    wide, unique = call.widened(), UNIQUE.get(call.name, "")
    reference = None if unique else _reference(entry, wide)
    if dtype in ("float64", "complex128"):  # the same call again would prove nothing
        if reference is None:
            return "not checked: OpInfo has no reference for it, and no dtype is wider"
        check(call.name, found.outputs, reference, dtype=dtype)
        return "checked against OpInfo's reference, gradients not" if found.gradients else AGAINST_REFERENCE
    allowed = check_against(wide, found, which=which, dtype=dtype, reference=reference, unique=unique)
    against = AGAINST_DOUBLE if reference is None else AGAINST_REFERENCE
    return against + (", gradients not: its vectors have any sign" if unique and found.gradients else "") + allowed


def _reference(entry: Any, wide: TorchCall) -> tuple[Array, ...] | None:
    """What the entry's own reference gives in double precision; None where it has none, or none for this sample."""
    from torch.testing._internal.opinfo.core import SampleInput

    if not callable(entry.ref):
        return None
    sample = SampleInput(wide.args[0], args=wide.args[1:], kwargs=dict(wide.kwargs)).numpy()  # type: ignore[no-untyped-call]
    try:
        with np.errstate(all="ignore"):
            return flat(entry.ref(sample.input, *sample.args, **sample.kwargs))
    except Exception:  # references are written for part of the samples only
        return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Deprecated operators are measured as well, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
