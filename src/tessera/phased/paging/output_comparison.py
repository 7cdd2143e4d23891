"""Compare the outputs of two networks: tensors in nested structures."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tessera.errors import BenchmarkFailed
from tessera.phased.paging.weight_table import WeightSlot

Compared = dict[tuple[int, int], tuple[Any, Any]]  # pairs of objects by their ids, which stay alive meanwhile
MAX_DIFFERENCE = 1e-6  # of the largest value of an output


def compute_difference(output: Any, expected: Any, *, by_feature: bool = False) -> float:
    """Return the largest difference relative to the largest value of a tensor; infinite if the structures differ.

    With `by_feature`, a difference is relative to the largest value at the same place in all samples (the first dim).
    Objects are compared by their attributes; values that cannot be compared differ.
    """
    return _compare(output, expected, by_feature, {})


def _compare(output: Any, expected: Any, by_feature: bool, seen: Compared) -> float:
    if type(output) is not type(expected):
        return math.inf
    if isinstance(expected, Tensor):
        return _compare_tensors(output, expected, by_feature)
    if isinstance(expected, int | float | complex | str | bytes | None):
        return 0.0 if output == expected or (output != output and expected != expected) else math.inf
    if (id(output), id(expected)) in seen:
        return 0.0
    seen[id(output), id(expected)] = output, expected
    if type(expected).__module__ == "numpy":
        return _compare_arrays(output, expected, by_feature)
    if isinstance(expected, Mapping):
        if list(output) != list(expected):
            return math.inf
        pairs = [(output[key], expected[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if len(output) != len(expected):
            return math.inf
        pairs = list(zip(output, expected, strict=True))
    elif dataclasses.is_dataclass(expected):
        names = [field.name for field in dataclasses.fields(expected)]
        pairs = [(getattr(output, name, None), getattr(expected, name, None)) for name in names]
    else:
        leaves, structure = pytree.tree_flatten(expected)
        if len(leaves) == 1 and leaves[0] is expected:
            return _compare_objects(output, expected, by_feature, seen)
        actual, actual_structure = pytree.tree_flatten(output)
        if actual_structure != structure:
            return math.inf
        pairs = list(zip(actual, leaves, strict=True))
    return max((_compare(a, e, by_feature, seen) for a, e in pairs), default=0.0)


def _compare_objects(output: Any, expected: Any, by_feature: bool, seen: Compared) -> float:
    attributes = getattr(expected, "__dict__", None)
    if attributes and not isinstance(expected, type) and not callable(expected):
        return _compare(dict(output.__dict__), dict(attributes), by_feature, seen)
    try:
        return 0.0 if bool(output == expected) else math.inf
    except Exception:  # any type may define `==` in its own way
        return math.inf


def _compare_arrays(output: Any, expected: Any, by_feature: bool) -> float:
    try:
        return _compare_tensors(torch.as_tensor(output), torch.as_tensor(expected), by_feature)
    except TypeError:  # text or objects
        same = output.shape == expected.shape and (output == expected).all()
        return 0.0 if bool(same) else math.inf


def _compare_tensors(output: Tensor, expected: Tensor, by_feature: bool) -> float:
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return math.inf
    if not expected.numel() or torch.equal(output, expected):
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = output.detach().to(wide), expected.detach().to(wide)
    if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a[b.isinf()], b[b.isinf()]):
        return math.inf
    a, b = a.where(b.isfinite(), 0), b.where(b.isfinite(), 0)
    scale = b.abs().max()
    if by_feature and b.dim() > 1:
        scale = b.abs().amax(0).clamp_min(1e-7 * float(scale))
    return float(((a - b).abs() / scale.where(scale > 0, 1.0)).max())


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
            loaded: dict[str, Tensor] = {}
            for slot in slots.values():  # all names of a tied weight have the same tensor
                loaded |= dict.fromkeys(slot.names, slot.fetch().detach().clone())
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
