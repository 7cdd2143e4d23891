"""Modules that do more than their class says: with hooks, or with a method of their own.

On cut images a layer computes what the class of a module computes, and torch.fx reads what the class of a model calls.
What was added to one instance would be lost without a word, or would see a tile instead of the image.
"""

from __future__ import annotations

from operator import attrgetter

from torch import nn

from tessera.errors import TesseraError
from tessera.spatial.layers.layer import HARMLESS
from tessera.spatial.network.trace import is_leaf

hooks_of = attrgetter("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def refuse_altered(model: nn.Module) -> None:
    """Refuse a model of which a module has hooks, or a method that is not its class's.

    Hooks of weights and of state dicts stay: gradients arrive at the weights as they do uncut.
    """
    for name, module in model.named_modules():
        if any(hooks_of(module)):
            raise TesseraError(
                f"{_said(name, module)} has hooks, which do not run on cut images",
                do="remove them; what changes its weights can be a parametrization (torch.nn.utils.parametrize)",
            )
        own = [method for method, entry in vars(module).items() if callable(entry) and _is_lost(model, module, method)]
        if own:
            raise TesseraError(
                f"{_said(name, module)} has a method that is not its class's, which does not run on cut images",
                got=own[0],
                do="give it a class with that method",
            )


def _is_lost(model: nn.Module, module: nn.Module, method: str) -> bool:
    """Whether nobody calls a method of this instance: of the model `forward`, of a leaf all that its class has too.

    Every other module is read with the methods that it has.
    """
    if module is model:
        return method == "forward"
    return hasattr(type(module), method) and method not in HARMLESS and is_leaf(module)


def _said(name: str, module: nn.Module) -> str:
    return f"layer {name} ({type(module).__name__})" if name else f"the model ({type(module).__name__})"
