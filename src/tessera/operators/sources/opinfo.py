"""Operators from torch's OpInfo database: every operator that torch tests, on its own samples made larger.

A sample is measured as torch's tests would call it. Before that its outputs are held against the entry's own NumPy
reference where it has one, otherwise against the same operator in double precision; gradients always against those
in double precision. The record's notes say which sample it was and what it was held against.
"""

from __future__ import annotations

import fnmatch
import itertools
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tessera.errors import Refused, TesseraError, did_you_mean
from tessera.operators.cases import DTYPES, PASSES
from tessera.operators.ready import Ready
from tessera.operators.sources.opinfo_index import index, op_db
from tessera.results.record import Case

# the lengths S, M and L that samples are made of, and the most elements that a sample may have
LENGTHS = {"small": (16, 32, 64), "medium": (64, 128, 256)}
MOST = {"small": 2**16, "medium": 2**22}


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
    size: Sequence[str] = ("small", "medium"),
    passes: Sequence[str] = ("forward", "backward"),
    dtype: Sequence[str] = ("float32",),
    seed: int = 0,
) -> list[Case]:
    """Every entry that matches, in every size, pass and dtype.

    An entry that does not differentiate has a forward pass only; one without floating-point numbers its own dtype.

    >>> [case.key for case in cases(["linalg.det"], size=["small"], passes=["forward"])]
    ['ops/linalg.det[backend=torch,dtype=float32,pass=forward,seed=0,size=small,source=opinfo]']
    """
    for what, got, allowed in (("size", size, LENGTHS), ("pass", passes, PASSES), ("dtype", dtype, DTYPES)):
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
    from tessera.operators.sources import torch_call

    size, which, dtype, seed = (case.params[name] for name in ("size", "pass", "dtype", "seed"))
    entry = _supporting(case.name, which, dtype)
    with _quiet(), _lengths(size):
        number, sample, call = _largest(entry, case.name, size=size, which=which, dtype=dtype, seed=seed)
        wide = call.widened()
        found = call.prepare(which, dtype)
        against = _check(entry, sample, call, wide, found, which=which, dtype=dtype)
        shapes = ", ".join(f"{tuple(tensor.shape)}" for tensor in call.tensors().values())
        return Ready(
            call=found.call,
            dtype=dtype,
            flops=torch_call.flops(found.call),
            moved=torch_call.moved(call, found, which),
            notes=(f"OpInfo sample {number}: {shapes or 'no tensors'}", against),
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
    names = sorted(str(kind).removeprefix("torch.") for kind in kinds)
    if dtype not in names:
        raise Refused(f"{name} has no such dtype on the CPU", got=dtype, allowed=names)
    return entry


def _largest(entry: Any, name: str, *, size: str, which: str, dtype: str, seed: int) -> tuple[int, Any, Any]:
    """The sample with the most elements among those that are not too many, and that runs."""
    import torch

    from tessera.operators.sources.torch_call import TorchCall

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    found, most, reason = None, -1, "it has no sample"
    try:
        samples = entry.sample_inputs("cpu", getattr(torch, dtype), requires_grad=which != "forward", set_seed=False)
        for number, sample in enumerate(samples):
            call = TorchCall(
                name=name, function=entry.op, args=(sample.input, *sample.args), kwargs=dict(sample.kwargs)
            )
            elements = sum(tensor.numel() for tensor in call.tensors().values())
            if elements > MOST[size]:
                reason = f"a sample has {elements} elements, more than {MOST[size]}"
            elif elements > most:
                try:
                    call.prepare(which, dtype)
                    found, most = (number, sample, call), elements
                except Exception as error:  # samples may be beyond what the operator, or this build, can do
                    reason = _first_line(error)
    except Exception as error:  # the function that makes the samples has lengths of its own that do not fit
        reason = _first_line(error)
    if found is None:
        raise Refused(f"no sample of {name} runs in {dtype}: {reason}")
    return found


def _check(entry: Any, sample: Any, call: Any, wide: Any, found: Any, *, which: str, dtype: str) -> str:
    """Hold a pass against what it should give, and say what that was."""
    from tessera.operators.sources.torch_call import check, check_gradients, is_random

    name = call.name
    if entry.has_nondeterministic_output or is_random(call):
        again = call.prepare("forward", dtype)
        check(name, found.outputs, again.outputs, dtype=dtype, values=False)
        return "its numbers are random: checked by shape"
    if dtype in ("float64", "complex128"):
        wanted = None
    else:
        wanted = wide.prepare(which, dtype)
    reference = _reference(entry, sample, wide)
    if reference is None and wanted is None:
        return "not checked: OpInfo has no reference for it, and no dtype is wider"
    check(name, found.outputs, wanted.outputs if reference is None else reference, dtype=dtype)
    if found.gradients and wanted is not None:
        check_gradients(name, found, wanted, dtype=dtype)
    return f"checked against {'the same operator in double precision' if reference is None else 'OpInfo’s reference'}"


def _reference(entry: Any, sample: Any, wide: Any) -> tuple[np.ndarray, ...] | None:
    """What the entry's own reference gives in double precision; None where it has none, or none for this sample."""
    from tessera.operators.check import flat

    if not callable(entry.ref):
        return None
    widened = type(sample)(wide.args[0], args=tuple(wide.args[1:]), kwargs=dict(wide.kwargs)).numpy()
    try:
        with np.errstate(all="ignore"):
            return flat(entry.ref(widened.input, *widened.args, **widened.kwargs))
    except Exception:  # references are written for part of the samples only
        return None


@contextmanager
def _lengths(size: str) -> Iterator[None]:
    """Samples of other lengths, while they are made."""
    import torch.testing._internal as internal

    op_db()
    prefix = internal.__name__
    inside = (f"{prefix}.common_methods_invocations", f"{prefix}.opinfo.")
    modules = [module for name, module in sys.modules.items() if name.startswith(inside)]
    lengths = dict(zip("SML", LENGTHS[size], strict=True))
    before = [(module, name, getattr(module, name)) for module in modules for name in lengths if hasattr(module, name)]
    try:
        for module, name, _ in before:
            setattr(module, name, lengths[name])
        yield
    finally:
        for module, name, length in before:
            setattr(module, name, length)


@contextmanager
def _quiet() -> Iterator[None]:
    """Deprecated operators are measured as well, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
