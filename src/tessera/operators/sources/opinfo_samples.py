"""Selection of the OpInfo sample to measure: the largest runnable sample, after the samples are enlarged.

torch builds its samples from three dim lengths S, M and L of 5, 10 and 20, so small that call overhead dominates. This
module sets larger lengths. Shapes have one to five dims of these lengths, so a length that suits most entries is too
large for some: the lengths are halved until no tensor is too large, but not below torch's own lengths.
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

from tessera.errors import Refused, get_first_line
from tessera.operators.sources.torch_call import TorchCall

Lengths = tuple[int, int, int]
TORCH_LENGTHS: Lengths = (5, 10, 20)
SAMPLE_LENGTHS: dict[str, Lengths] = {"small": (16, 32, 64), "medium": (64, 128, 256)}
MAX_ELEMENTS = {"small": 2**16, "medium": 2**20}  # largest number of elements of one tensor of a sample
MAX_GROWTH = 16  # factor on MAX_ELEMENTS for tensors that the operator creates


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfoSample:
    """One OpInfo sample: its call, the lengths S, M and L, and its index among the samples of its entry."""

    number: int
    lengths: Lengths
    call: TorchCall


class TensorTooLarge(Exception):
    """Error: a tensor has more elements than allowed."""


class _SizeLimit(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that raises `TensorTooLarge` for a tensor above `most` elements.

    If the operator has an argument `size`, the error is raised before the tensor is allocated.
    """

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
            raise TensorTooLarge(f"a tensor of {elements} elements, more than {self._most}")


def find_largest_sample(entry: Any, name: str, *, size: str, pass_name: str, dtype: str, seed: int) -> OpInfoSample:
    """Return the runnable sample of an OpInfo entry with the most elements; equal seeds give equal samples."""
    reason = ""
    for lengths in _iter_lengths(size):
        try:
            with _set_lengths(lengths):
                return _find_largest(
                    entry, name, lengths, most=MAX_ELEMENTS[size], pass_name=pass_name, dtype=dtype, seed=seed
                )
        except TensorTooLarge as error:
            reason = str(error)
        except Exception as error:  # the operator may not support the enlarged sample
            reason = get_first_line(error)
    raise Refused(f"no sample of {name} runs in {dtype}: {reason}")


def _iter_lengths(size: str) -> Iterator[Lengths]:
    lengths = SAMPLE_LENGTHS[size]
    while lengths > TORCH_LENGTHS:
        yield lengths
        lengths = tuple(length // 2 for length in lengths)  # type: ignore[assignment]
    yield TORCH_LENGTHS


def _find_largest(
    entry: Any, name: str, lengths: Lengths, *, most: int, pass_name: str, dtype: str, seed: int
) -> OpInfoSample:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    best, elements, failed = None, -1, None
    with _SizeLimit(most) if lengths != TORCH_LENGTHS else nullcontext():
        samples = entry.sample_inputs(
            "cpu", getattr(torch, dtype), requires_grad=pass_name != "forward", set_seed=False
        )
        for number, sample in enumerate(samples):
            arguments = (sample.input, *sample.args)
            call = TorchCall(name=name, function=entry.op, args=arguments, kwargs=sample.kwargs).detach()
            counts = [tensor.numel() for tensor in call.list_tensors().values()]
            if sum(counts) > elements and max(counts, default=0) <= most:
                try:
                    with _SizeLimit(MAX_GROWTH * most):
                        call.prepare(pass_name, dtype)
                    best, elements = OpInfoSample(number=number, lengths=lengths, call=call), sum(counts)
                except Exception as error:
                    failed = error
    if best is None:
        raise failed or Refused(f"OpInfo has no sample of {name}")
    return best


@contextmanager
def _set_lengths(lengths: Lengths) -> Iterator[None]:
    """Set the lengths S, M and L from which torch builds samples, within the context."""
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
