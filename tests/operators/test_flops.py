"""FLOPs of the catalogue against torch's own counter, on every size; nothing is computed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tessera.operators.backends.torch_backend import NAMES, leaves
from tessera.operators.catalogue import OPERATORS
from tessera.operators.expression import bound
from tessera.operators.operator import SIZES, Call

COUNTED = ("gemm", "convolution", "attention", "recurrent")
# of these torch's counter knows none: products of vectors, elementwise ones, whole numbers, kernels of their own
UNSEEN = {
    *("mv", "addmv", "dot", "vdot", "linalg_vecdot", "outer", "addr", "kron", "bilinear", "addbmm"),
    *("inplace_addmm", "int_mm", "conv_tbc", "native_multi_head_attention"),
}
# it counts a complex product as one real product, where there are four
COMPLEX = {"matmul_complex"}
# their backward pass computes the scores once more, in a kernel that runs on real devices only
RECOMPUTED = "scaled_dot_product_attention"


def _meta(one, differentiated):
    kinds = {"float": torch.float32, "complex": torch.complex64}
    kind = kinds.get(one.kind) or getattr(torch, one.kind)
    tensor = torch.empty(one.shape, dtype=kind, device="meta")
    return tensor.requires_grad_(differentiated and one.differentiable)


def _counts(operator, size):
    """torch's count of the forward and of the backward pass, and the call as our own count sees it."""
    inputs = operator.inputs(size)
    shapes = {name: one.shape for name, one in inputs.items()}
    attributes = operator.attributes_for(shapes)
    tensors = {name: _meta(one, operator.differentiable) for name, one in inputs.items()}
    with FlopCounterMode(display=False) as forward:
        outputs = leaves(bound(operator.torch, {**NAMES, **tensors, **attributes})())
    with FlopCounterMode(display=False) as backward:
        ends = [out for out in outputs if out.requires_grad]
        if ends:
            wanted = [tensor for tensor in tensors.values() if tensor.requires_grad]
            torch.autograd.grad(ends, wanted, [torch.empty_like(end) for end in ends], allow_unused=True)
    call = Call(
        shapes=shapes, attributes=attributes, outputs=tuple(tuple(out.shape) for out in outputs), read={}, written=()
    )
    return forward.get_total_flops(), backward.get_total_flops(), call


def _cases():
    """Every operator in every size; a long recurrent layer is thousands of calls for torch's counter to follow."""
    for operator in OPERATORS.values():
        for size in SIZES if operator.category in COUNTED else ():
            long = operator.category == "recurrent" and size == "large"
            yield pytest.param(operator.name, size, marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize(("name", "size"), _cases())
def test_flops_are_those_that_torch_counts(name, size):
    operator = OPERATORS[name]
    forward, backward, call = _counts(operator, size)
    if name in UNSEEN:
        assert forward == 0
        return
    expected = operator.flops(call) / (4 if name in COMPLEX else 1)
    assert forward == expected
    # of a grouped weight's gradient torch counts every pair of channels
    grouped = call.attributes.get("groups", 1) > 1
    if operator.differentiable and not grouped and not name.startswith(RECOMPUTED):
        assert backward == operator.backward_flops * expected
