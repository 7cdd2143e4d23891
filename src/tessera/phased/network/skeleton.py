"""The skeleton of a network: its modules on the meta device, and the names of its weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError, get_first_line

TRAINING_DEPENDENT_MODULES = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
BATCH_COUNTER = "num_batches_tracked"  # counter of batch norms: not used for inference, and missing in some files


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """A model on the meta device; `names` holds all names of each weight, the stored name first.

    Tied weights are one tensor with several names. Non-persistent buffers and constants keep their values.
    """

    model: nn.Module
    names: tuple[tuple[str, ...], ...]

    def get_tensor(self, name: str) -> Tensor:
        """Return the weight with this name as a meta tensor, without values."""
        owner, _, attribute = name.rpartition(".")
        tensor = getattr(self.model.get_submodule(owner), attribute)
        assert isinstance(tensor, Tensor)
        return tensor

    @cached_property
    def stored_name(self) -> dict[str, str]:
        """The stored name for every name of a weight."""
        return {name: names[0] for names in self.names for name in names}

    def copy_model(self) -> nn.Module:
        """Return a copy of the model for one device: devices must not set weights of shared modules."""
        return copy.deepcopy(self.model)


def build_skeleton(model: nn.Module) -> Skeleton:
    """Build the skeleton of a model. The weights are neither copied nor kept alive."""
    if any(isinstance(module, TRAINING_DEPENDENT_MODULES) and module.training for module in model.modules()):
        raise TesseraError("PhasedModel requires a model in evaluation mode", do="call model.eval()")
    if model._forward_hooks or model._forward_pre_hooks or "forward" in vars(model):
        raise TesseraError(
            f"{type(model).__name__} has hooks or a `forward` set on the instance, which PhasedModel does not support",
            do="remove them, or wrap the model: nn.Sequential(model)",
        )
    state = get_weights(model)
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    for name, buffer in model.named_buffers():
        if name not in state and buffer.is_meta and not name.endswith(BATCH_COUNTER):
            raise TesseraError(f"the non-persistent buffer {name} has no values", do="create the buffer on the CPU")
    # deepcopy uses the tensors in its memo as copies, so the memory of the weights is never copied
    bare = {id(tensor): _build_meta_tensor(tensor) for tensor in state.values()}
    try:
        copied = copy.deepcopy(model, bare).eval().requires_grad_(False)
    except Exception as error:  # a model may hold any objects
        raise TesseraError(
            f"{type(model).__name__} cannot be copied without its weights: {get_first_line(error)}",
            do="remove objects that cannot be copied (weight_norm: call remove_weight_norm)",
        ) from error
    return Skeleton(model=copied, names=tuple(tuple(names) for names in groups.values()))


def get_weights(model: nn.Module) -> Mapping[str, Tensor]:
    """Return parameters and persistent buffers by name; tied weights are the same object under each name."""
    state = model.state_dict(keep_vars=True)
    return {n: value for n, value in state.items() if isinstance(value, Tensor) and not n.endswith(BATCH_COUNTER)}


def _build_meta_tensor(tensor: Tensor) -> Tensor:
    bare = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")  # `empty_like` would import sympy
    return nn.Parameter(bare, requires_grad=False) if isinstance(tensor, nn.Parameter) else bare
