"""Cases from torch's OpInfo database: every operator that torch tests, on enlarged versions of torch's test samples.

An operator is called as in torch's tests. Before timing, its outputs are compared with the NumPy reference of the
OpInfo entry, or with the same operator in double precision if the entry has none. Gradients are always compared with
double precision. The record's notes name the sample and the comparison.
"""

from __future__ import annotations

import fnmatch
import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera.errors import Refused, TesseraError, suggest_similar
from tessera.operators.arrays import Array, flatten_outputs
from tessera.operators.backends.backend import PreparedOperator
from tessera.operators.cases import DTYPES, PASSES
from tessera.operators.preparation import PreparedPass
from tessera.operators.sources.opinfo_index import load_database, load_index
from tessera.results.record import Case

if TYPE_CHECKING:
    from tessera.operators.sources.torch_call import TorchCall

OPINFO_SIZES = ("small", "medium")
CHECKED_AGAINST_DOUBLE = "checked against the same operator in double precision"
CHECKED_AGAINST_REFERENCE = "checked against OpInfo's reference"

# Singular vectors and eigenvectors have an arbitrary sign or phase: these expressions select the unique parts.
_REDUCED_COLUMNS = "[..., :out[1].shape[-1]]"
UNIQUE_PARTS = {
    "linalg.eig": "(out[0], np.abs(out[1]))",
    "linalg.eigh": "(out[0], np.abs(out[1]))",
    "linalg.svd": f"(out[1], np.abs(out[0]{_REDUCED_COLUMNS}), np.abs(out[2].swapaxes(-1, -2){_REDUCED_COLUMNS}))",
    "svd": f"(out[1], np.abs(out[0]{_REDUCED_COLUMNS}), np.abs(out[2]{_REDUCED_COLUMNS}))",
}


def find_entries(patterns: Sequence[str]) -> list[str]:
    """Return the OpInfo entries that match names or globs; the error for an unknown name suggests similar names."""
    matches: dict[str, None] = {}
    for pattern in patterns:
        names = [pattern] if pattern in load_index() else fnmatch.filter(load_index(), pattern)
        if not names:
            do = suggest_similar(pattern, load_index(), "globs are allowed")
            raise TesseraError("OpInfo has no such operator", got=pattern, do=do)
        matches |= dict.fromkeys(names)
    return list(matches)


def cases(
    names: Sequence[str] = ("*",),
    *,
    size: Sequence[str] = OPINFO_SIZES,
    passes: Sequence[str] = ("forward", "backward"),
    dtype: Sequence[str] = ("float32",),
    seed: int = 0,
) -> list[Case]:
    """Return the cases of every OpInfo entry that matches `names`, for every size, pass and dtype.

    An operator without a gradient has only forward cases; an operator without floating-point support uses the dtype of
    its entry.

    >>> [case.key for case in cases(["linalg.det"], size=["small"], passes=["forward"])]
    ['ops/linalg.det[backend=torch,dtype=float32,pass=forward,seed=0,size=small,source=opinfo]']
    """
    for what, got, allowed in (("size", size, OPINFO_SIZES), ("pass", passes, PASSES), ("dtype", dtype, DTYPES)):
        for value in got:
            if value not in allowed:
                raise TesseraError(f"unknown {what} of an OpInfo case", got=value, allowed=allowed)
    selected = []
    for name in find_entries(names):
        entry = load_index()[name]
        kinds = [entry.dtype] if entry.dtype else dtype
        own_passes = passes if entry.differentiable else [which for which in passes if which == "forward"] or passes
        for length, which, kind in itertools.product(size, own_passes, kinds):
            params = {
                "backend": "torch",
                "source": "opinfo",
                "size": length,
                "pass": which,
                "dtype": kind,
                "seed": seed,
            }
            selected.append(Case(feature="ops", name=name, params=params))
    return selected


def prepare_case(case: Case) -> PreparedPass:
    """Prepare the largest runnable OpInfo sample of a case, and check its results."""
    from tessera.operators.refusal import refusing_errors
    from tessera.operators.sources import torch_call
    from tessera.operators.sources.opinfo_samples import find_largest_sample

    size, pass_name, dtype, seed = (case.params[name] for name in ("size", "pass", "dtype", "seed"))
    entry = _select_supporting(case.name, pass_name, dtype)
    with _ignore_warnings():
        sample = find_largest_sample(entry, case.name, size=size, pass_name=pass_name, dtype=dtype, seed=seed)
        call = sample.call
        # torch raises errors for some gradients, depending on input values
        with refusing_errors(f"{case.name} does not run"):
            prepared = call.prepare(pass_name, dtype)
            checked = _check_results(entry, call, prepared, pass_name=pass_name, dtype=dtype)
        shapes = ", ".join(f"{tuple(tensor.shape)}" for tensor in call.list_tensors().values()) or "no tensors"
        lengths = ", ".join(map(str, sample.lengths))
        return PreparedPass(
            call=prepared.call,
            dtype=dtype,
            flops=torch_call.count_flops(prepared.call),
            moved=torch_call.count_moved_bytes(call, prepared, pass_name),
            notes=(f"OpInfo sample {sample.number}, of lengths {lengths}: {shapes}", checked),
        )


def _select_supporting(name: str, pass_name: str, dtype: str) -> Any:
    """Return the OpInfo entry of an operator; raise `Refused` if it does not support the pass or dtype."""
    entries = load_database()
    if name not in entries:
        raise Refused("the OpInfo database of the installed torch does not have this operator", got=name)
    entry = entries[name]
    if pass_name != "forward" and not entry.supports_autograd:
        raise Refused(f"{name} has no gradient", got=pass_name, allowed="forward")
    kinds = entry.dtypes if pass_name == "forward" else entry.backward_dtypes
    if not kinds:
        raise Refused(f"{name} does not run on a CPU")
    names = sorted(str(kind).removeprefix("torch.") for kind in kinds)
    if dtype not in names:
        raise Refused(f"{name} does not support the dtype on a CPU", got=dtype, allowed=names)
    return entry


def _check_results(entry: Any, call: TorchCall, prepared: PreparedOperator, *, pass_name: str, dtype: str) -> str:
    """Check the results of a pass, and return a note that names the reference used."""
    from tessera.operators.sources.double_precision import check_against_double, check_values
    from tessera.operators.sources.torch_call import is_random

    if entry.has_nondeterministic_output or is_random(call):
        again = call.prepare("forward", dtype)
        check_values(call.name, prepared.outputs, again.outputs, dtype=dtype, values=False)
        return "random output: only its shape was checked"
    wide, unique = call.widen(), UNIQUE_PARTS.get(call.name, "")
    reference = None if unique else _compute_reference(entry, wide)
    if dtype in ("float64", "complex128"):  # there is no wider dtype to compare with
        if reference is None:
            return "not checked: OpInfo has no reference, and there is no wider dtype"
        check_values(call.name, prepared.outputs, reference, dtype=dtype)
        return "checked against OpInfo's reference, gradients not" if prepared.gradients else CHECKED_AGAINST_REFERENCE
    allowed = check_against_double(wide, prepared, pass_name=pass_name, dtype=dtype, reference=reference, unique=unique)
    against = CHECKED_AGAINST_DOUBLE if reference is None else CHECKED_AGAINST_REFERENCE
    return against + (", gradients not: its vectors have any sign" if unique and prepared.gradients else "") + allowed


def _compute_reference(entry: Any, wide: TorchCall) -> tuple[Array, ...] | None:
    """Return the outputs of the entry's NumPy reference in double precision, or None if it cannot run this sample."""
    from torch.testing._internal.opinfo.core import SampleInput

    if not callable(entry.ref):
        return None
    sample = SampleInput(wide.args[0], args=wide.args[1:], kwargs=dict(wide.kwargs)).numpy()  # type: ignore[no-untyped-call]
    try:
        with np.errstate(all="ignore"):
            return flatten_outputs(entry.ref(sample.input, *sample.args, **sample.kwargs))
    except Exception:  # some references support only part of the samples
        return None


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Suppress warnings within the context: deprecated operators are measured too, and would warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
