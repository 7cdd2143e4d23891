"""Hooks of weights: gradients that autograd computed from split tensors become plain tensors.

Without them, a weight that was combined with a split activation would get a split tensor as its gradient. The hooks are
registered before those of the user, which then get plain gradients.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from tessera.spatial.agreement import iter_modules
from tessera.spatial.tensor.boundary import join_parts
from tessera.spatial.tensor.gradient_buckets import find_pending_sum, store
from tessera.spatial.tensor.split_tensor import SplitTensor

_hooked_weights: dict[int, weakref.ref[Tensor]] = {}  # by id: hooks are lost when a weight is copied
_sharded_modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def hook_weights(model: nn.Module, arguments: Sequence[Any] = ()) -> None:
    """Register the hooks of all weights of a model, and of tensors among its arguments, that have none yet."""
    if not torch.is_grad_enabled():
        return
    for argument in arguments:
        if isinstance(argument, Tensor) and not isinstance(argument, SplitTensor) and argument.is_leaf:
            _hook_weight(argument)
    fsdp = sys.modules.get("torch.distributed.fsdp")  # loaded if a module is sharded
    for module in iter_modules(model):
        _hook_weights(module)
        if fsdp is not None and isinstance(module, fsdp.FSDPModule) and module not in _sharded_modules:
            module.register_forward_pre_hook(_hook_gathered_weights)
            _sharded_modules.add(module)


def _hook_weights(module: nn.Module) -> None:
    for weight in module._parameters.values():
        if weight is not None:
            _hook_weight(weight)


def _hook_weight(weight: Tensor) -> None:
    if not weight.requires_grad:
        return
    known = _hooked_weights.get(id(weight))
    if known is None or known() is not weight:
        reference = weakref.ref(weight, partial(_forget_weight, id(weight)))
        weight.register_hook(partial(_receive_gradient, reference))  # type: ignore[no-untyped-call]
        _hooked_weights[id(weight)] = reference


def _forget_weight(key: int, reference: weakref.ref[Tensor]) -> None:
    if _hooked_weights.get(key) is reference:
        del _hooked_weights[key]


def _hook_gathered_weights(module: nn.Module, args: Any) -> None:
    """Forward hook of modules that FSDP shards: their parameters are different tensors while the network runs."""
    if torch.is_grad_enabled():
        for inner in iter_modules(module):
            _hook_weights(inner)


def _receive_gradient(reference: weakref.ref[Tensor], gradient: Tensor) -> Tensor:
    weight = reference()
    if weight is not None and find_pending_sum(gradient) is not None and _may_wait(weight):
        assert isinstance(gradient, SplitTensor)
        return store(gradient, weight)
    return join_parts(gradient)


def _may_wait(weight: Tensor) -> bool:
    """Return whether only autograd reads a gradient before the backward pass ends, to store it as `weight.grad`."""
    if torch.is_grad_enabled() or not weight.is_leaf or weight.layout != torch.strided:
        return False
    if len(weight._backward_hooks or ()) > 1 or weight._post_accumulate_grad_hooks:
        return False
    existing = weight.grad
    if existing is not None and (existing.requires_grad or existing.layout != torch.strided):
        return False
    try:
        return bool(torch._C._will_engine_execute_node(get_gradient_edge(weight).node))
    except RuntimeError:  # torch.autograd.grad: autograd returns the gradient
        return False


def is_reduced_by_torch() -> bool:
    """Return whether DDP or FSDP reads gradients during the backward pass. They then cannot wait for a bucket."""
    if torch.nn.parallel.DistributedDataParallel._active_ddp_module is not None:
        return True
    states = sys.modules.get("torch.distributed._composable_state")  # of fully_shard and replicate
    return states is not None and bool(states._module_state_mapping)
