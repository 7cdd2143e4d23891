"""Which of an OpInfo entry's samples is measured: the largest that runs, after they were made larger.

torch's samples are made of three lengths S, M and L, of 5, 10 and 20: too small to measure anything but the call
itself. They are made of greater ones here. Shapes have one to five dims of these lengths, so what suits most entries
is far too much for some: the lengths are halved, down to torch's own, until no tensor is too large.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tessera.errors import Refused, first_line
from tessera.operators.sources.torch_call import TorchCall

Lengths = tuple[int, int, int]
TORCHS_OWN: Lengths = (5, 10, 20)
LENGTHS: dict[str, Lengths] = {"small": (16, 32, 64), "medium": (64, 128, 256)}
MOST = {"small": 2**16, "medium": 2**20}  # elements of one tensor of a sample
GROWTH = 16  # and so many times as many of one that the operator makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample as it is called, the lengths S, M and L it is made of, and its number among the entry's samples."""

    number: int
    lengths: Lengths
    call: TorchCall


class TooLarge(Exception):
    """A tensor that has more elements than it may have."""


class _Limit(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stops whoever makes a tensor that is too large, where it says its size before the memory is touched."""

    def __init__(self, most: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._most = most

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.name == "size" and isinstance(value, list | tuple):
                self._check(math.prod(value))
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._check(leaf.numel())
        return result

    def _check(self, elements: int) -> None:
        if elements > self._most:
            raise TooLarge(f"a tensor of {elements} elements, more than {self._most}")


def largest(entry: Any, name: str, *, size: str, which: str, dtype: str, seed: int) -> Sample:
    """The sample with the most elements that runs; the same for the same seed."""
    reason = ""
    for lengths in _descending(size):
        try:
            with _lengths(lengths):
                return _largest(entry, name, lengths, most=MOST[size], which=which, dtype=dtype, seed=seed)
        except TooLarge as error:
            reason = str(error)
        except Exception as error:  # a sample may be beyond what the operator can do, or have lengths of its own
            reason = first_line(error)
    raise Refused(f"no sample of {name} runs in {dtype}: {reason}")


def _descending(size: str) -> Iterator[Lengths]:
    lengths = LENGTHS[size]
    while lengths > TORCHS_OWN:
        yield lengths
        lengths = tuple(length // 2 for length in lengths)  # type: ignore[assignment]
    yield TORCHS_OWN


def _largest(entry: Any, name: str, lengths: Lengths, *, most: int, which: str, dtype: str, seed: int) -> Sample:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    found, elements, failed = None, -1, None
    with _Limit(most) if lengths != TORCHS_OWN else nullcontext():
        samples = entry.sample_inputs("cpu", getattr(torch, dtype), requires_grad=which != "forward", set_seed=False)
        for number, sample in enumerate(samples):
            arguments = (sample.input, *sample.args)
            call = TorchCall(name=name, function=entry.op, args=arguments, kwargs=sample.kwargs).detached()
            counts = [tensor.numel() for tensor in call.tensors().values()]
            if sum(counts) > elements and max(counts, default=0) <= most:
                try:
                    with _Limit(GROWTH * most):
                        call.prepare(which, dtype)
                    found, elements = Sample(number=number, lengths=lengths, call=call), sum(counts)
                except Exception as error:
                    failed = error
    if found is None:
        raise failed or Refused("it has no sample")
    return found


@contextmanager
def _lengths(lengths: Lengths) -> Iterator[None]:
    """Samples of these lengths, while they are made."""
    internal = "torch.testing._internal"
    inside = (f"{internal}.common_methods_invocations", f"{internal}.opinfo.")
    modules = [module for name, module in sys.modules.items() if name.startswith(inside)]
    new = dict(zip("SML", lengths, strict=True))
    before = [(module, name, getattr(module, name)) for module in modules for name in new if hasattr(module, name)]
    try:
        for module, name, _ in before:
            setattr(module, name, new[name])
        yield
    finally:
        for module, name, length in before:
            setattr(module, name, length)
