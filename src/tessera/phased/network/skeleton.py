"""A network without its weights: the same modules on the meta device, and the names of what was left behind."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError, first_line

DIFFERENT_IN_TRAINING = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
COUNTER = "num_batches_tracked"  # of batch norms: never read for inference, and not in every file


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    """A model on the meta device; `names` gives every name that a weight has, the one it is stored by first.

    Tied weights are one tensor with several names. What is no weight (buffers that a state dict leaves out, constants)
    keeps its values.
    """

    model: nn.Module
    names: tuple[tuple[str, ...], ...]

    def tensor(self, name: str) -> Tensor:
        """The weight of a name, without its values."""
        owner, _, own = name.rpartition(".")
        found = getattr(self.model.get_submodule(owner), own)
        assert isinstance(found, Tensor)
        return found

    @cached_property
    def stored_name(self) -> dict[str, str]:
        """For every name of a weight the one it is stored by."""
        return {name: names[0] for names in self.names for name in names}

    def another(self) -> nn.Module:
        """A second such model, so that two devices never set the weights of the same modules."""
        return copy.deepcopy(self.model)


def skeleton_of(model: nn.Module) -> Skeleton:
    """The skeleton of a model, which is left as it is; nothing of its memory is copied or kept."""
    if any(isinstance(module, DIFFERENT_IN_TRAINING) and module.training for module in model.modules()):
        raise TesseraError("phases are run for inference, and this model is in training mode", do="call model.eval()")
    if model._forward_hooks or model._forward_pre_hooks or "forward" in vars(model):
        raise TesseraError(
            f"{type(model).__name__} has hooks of its own or a `forward` that is not its class's, which no phase runs",
            do="remove them, or wrap the model: nn.Sequential(model)",
        )
    state = weights_of(model)
    groups: dict[int, list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    for name, buffer in model.named_buffers():
        if name not in state and buffer.is_meta and not name.endswith(COUNTER):
            raise TesseraError(f"the buffer {name} is in no file and has no values", do="build it off the meta device")
    # deepcopy takes what it finds in its memo for copied already: the weights' memory is never touched
    bare = {id(tensor): _without_memory(tensor) for tensor in state.values()}
    try:
        bones = copy.deepcopy(model, bare).eval().requires_grad_(False)
    except Exception as error:  # whatever a model holds beside its layers
        raise TesseraError(
            f"{type(model).__name__} cannot be copied without its weights: {first_line(error)}",
            do="take what cannot be copied out of it (of weight_norm, by remove_weight_norm)",
        ) from error
    return Skeleton(model=bones, names=tuple(tuple(names) for names in groups.values()))


def weights_of(model: nn.Module) -> Mapping[str, Tensor]:
    """Parameters and kept buffers by name; tied ones are the same object under each of their names."""
    state = model.state_dict(keep_vars=True)
    return {n: value for n, value in state.items() if isinstance(value, Tensor) and not n.endswith(COUNTER)}


def _without_memory(tensor: Tensor) -> Tensor:
    bare = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")  # `empty_like` would import half of sympy
    return nn.Parameter(bare, requires_grad=False) if isinstance(tensor, nn.Parameter) else bare
