"""Compare the outputs of two networks: tensors in nested structures."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tessera.errors import BenchmarkFailed
from tessera.phased.paging.weight_table import WeightSlot

MAX_DIFFERENCE = 1e-6  # relative to the largest value of an output


def compute_difference(output: Any, expected: Any) -> float:
    """Return the largest difference relative to the largest value of a tensor; infinite if the structures differ."""
    actual, actual_structure = pytree.tree_flatten(output)
    wanted, structure = pytree.tree_flatten(expected)
    if type(output) is not type(expected) or actual_structure != structure:
        return math.inf
    return max((_compare_leaf(a, w) for a, w in zip(actual, wanted, strict=True)), default=0.0)


def _compare_leaf(output: Any, expected: Any) -> float:
    if not isinstance(expected, Tensor):
        plain = isinstance(expected, int | float | str | bool | type(None))
        return math.inf if plain and output != expected and expected == expected else 0.0
    if not isinstance(output, Tensor) or output.shape != expected.shape or output.dtype != expected.dtype:
        return math.inf
    if not expected.numel() or torch.equal(output, expected):
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = output.detach().to(wide), expected.detach().to(wide)
    if not torch.equal(a.isfinite(), b.isfinite()):
        return math.inf
    a, b = a[b.isfinite()], b[b.isfinite()]
    return float((a - b).abs().max() / (b.abs().max() or 1.0)) if b.numel() else 0.0


def compare_with_reference(
    network: nn.Module, reference: nn.Module, slots: Mapping[str, WeightSlot], args: Any, kwargs: Any
) -> Any:
    """Run a network, compare its output with the plain network's, and return the output.

    `reference` may be on the meta device; its weights are then loaded from `slots`.
    """
    values = {id(value): value for value in reference.parameters()}
    plain = copy.deepcopy(reference, values)  # the state of the reference stays as it is; parameters are shared
    copied = pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, (args, kwargs))
    state = torch.get_rng_state()
    with torch.no_grad():
        if any(value.is_meta for value in plain.state_dict(keep_vars=True).values() if isinstance(value, Tensor)):
            loaded = {name: slot.fetch().detach().clone() for slot in slots.values() for name in slot.names}
            expected = torch.func.functional_call(plain, loaded, copied[0], copied[1])
        else:
            expected = plain(*copied[0], **copied[1])
    torch.set_rng_state(state)
    output = network(*args, **kwargs)
    difference = compute_difference(output, expected)
    if not difference <= MAX_DIFFERENCE:
        raise BenchmarkFailed(
            f"the output of {type(network).__name__} differs from the plain network by {difference:.1e} "
            f"(allowed: {MAX_DIFFERENCE:g})",
            do="report the network",
        )
    return output
