"""Tests of the FLOP counts of the catalogue, compared with torch's counter on meta tensors of every size."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tessera.operators.backends.torch_backend import EXPRESSION_NAMES, flatten_leaves
from tessera.operators.catalogue import OPERATORS
from tessera.operators.expression import bind_expression
from tessera.operators.operator import SIZES, OperatorCall

COUNTED = ("gemm", "convolution", "attention", "recurrent")
# operators that torch's counter ignores: vector and elementwise products, integer products, special kernels
UNSEEN = {
    *("mv", "addmv", "dot", "vdot", "linalg_vecdot", "outer", "addr", "kron", "bilinear", "addbmm"),
    *("inplace_addmm", "int_mm", "conv_tbc", "native_multi_head_attention"),
}
# torch's counter counts a complex product as one real product instead of four
COMPLEX = {"matmul_complex"}
# operators with a backward pass that recomputes the scores, in a kernel that meta tensors do not use
RECOMPUTED = "scaled_dot_product_attention"


def _make_meta_tensors(one, differentiated):
    kinds = {"float": torch.float32, "complex": torch.complex64}
    kind = kinds.get(one.kind) or getattr(torch, one.kind)
    tensor = torch.empty(one.shape, dtype=kind, device="meta")
    return tensor.requires_grad_(differentiated and one.differentiable)


def _count_flops(operator, size):
    """Return torch's FLOP counts of the forward and backward pass, and the call that `operator.flops` takes."""
    inputs = operator.get_inputs(size)
    shapes = {name: one.shape for name, one in inputs.items()}
    attributes = operator.get_attributes(shapes)
    tensors = {name: _make_meta_tensors(one, operator.differentiable) for name, one in inputs.items()}
    with FlopCounterMode(display=False) as forward:
        outputs = flatten_leaves(bind_expression(operator.torch, {**EXPRESSION_NAMES, **tensors, **attributes})())
    with FlopCounterMode(display=False) as backward:
        ends = [out for out in outputs if out.requires_grad]
        if ends:
            wanted = [tensor for tensor in tensors.values() if tensor.requires_grad]
            torch.autograd.grad(ends, wanted, [torch.empty_like(end) for end in ends], allow_unused=True)
    call = OperatorCall(
        shapes=shapes, attributes=attributes, outputs=tuple(tuple(out.shape) for out in outputs), read={}, written=()
    )
    return forward.get_total_flops(), backward.get_total_flops(), call


def _iter_cases():
    """Yield every operator in every size; large recurrent layers are slow, because torch counts thousands of calls."""
    for operator in OPERATORS.values():
        for size in SIZES if operator.category in COUNTED else ():
            long = operator.category == "recurrent" and size == "large"
            yield pytest.param(operator.name, size, marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize(("name", "size"), _iter_cases())
def test_flop_counts_match_torch(name, size):
    operator = OPERATORS[name]
    forward, backward, call = _count_flops(operator, size)
    if name in UNSEEN:
        assert forward == 0
        return
    expected = operator.flops(call) / (4 if name in COMPLEX else 1)
    assert forward == expected
    # for the weight gradient of a grouped convolution, torch counts all pairs of channels
    grouped = call.attributes.get("groups", 1) > 1
    if operator.differentiable and not grouped and not name.startswith(RECOMPUTED):
        assert backward == operator.backward_flops * expected
