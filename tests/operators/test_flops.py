"""FLOPs of the catalogue against torch's own counter, on every size; nothing is computed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tessera.operators.backends.torch_backend import NAMES
from tessera.operators.catalogue import OPERATORS
from tessera.operators.expression import bound
from tessera.operators.operator import SIZES, Call

COUNTED = ("gemm", "convolution", "attention", "recurrent")
# written as elementwise products and sums, as products of vectors, or in one kernel: torch's counter sees none of it
UNSEEN = {"mv", "dot"}


def _meta(one):
    kinds = {"float": torch.float32, "complex": torch.complex64}
    return torch.empty(one.shape, dtype=kinds.get(one.kind) or getattr(torch, one.kind), device="meta")


def _leaves(result):
    return [leaf for part in result for leaf in _leaves(part)] if isinstance(result, list | tuple) else [result]


def _counted(operator, size):
    """torch's count of the operator's forward pass, and the call as our own count sees it."""
    inputs = operator.inputs(size)
    shapes = {name: one.shape for name, one in inputs.items()}
    attributes = operator.attributes_for(shapes)
    call = bound(operator.torch, {**NAMES, **{name: _meta(one) for name, one in inputs.items()}, **attributes})
    with FlopCounterMode(display=False) as counter:
        outputs = tuple(tuple(leaf.shape) for leaf in _leaves(call()))
    return counter.get_total_flops(), Call(shapes=shapes, attributes=attributes, outputs=outputs, read={}, written=())


@pytest.mark.parametrize("name", sorted(op.name for op in OPERATORS.values() if op.category in COUNTED))
def test_flops_are_those_that_torch_counts(name):
    operator = OPERATORS[name]
    for size in SIZES:
        counted, call = _counted(operator, size)
        assert operator.flops(call) == counted
