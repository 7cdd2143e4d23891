"""Batch norms and activations are no operations of their own: they are fused with what they follow, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.errors import TesseraError

if TYPE_CHECKING:
    from torch import fx, nn

# What is applied where a sum is made, by the name of its module.
ACTIVATIONS = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SiLU": "silu",
    "Hardswish": "hardswish",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
}
NORM = "BatchNorm2d"
IDLE = ("Identity", "Dropout")  # they do nothing when a model is evaluated


class Waiting:
    """The batch norm and the activation that are met before what they follow, when a graph is gone through backwards.

    Either is fused with it only if nothing else reads what it makes.
    """

    def __init__(self) -> None:
        self.activation, self.norm = "", False

    def takes(self, graph: fx.GraphModule, node: fx.Node) -> bool:
        """Whether a node is one of them, or idle."""
        kind = type(module_of(graph, node)).__name__
        if kind in IDLE:
            return True
        if kind not in ACTIVATIONS and kind != NORM:
            return False
        if self.norm or (self.activation and kind in ACTIVATIONS):
            raise refused(node, "it follows no convolution, linear layer or sum")
        if (self.activation or self.norm) and len(node.users) > 1:
            raise refused(node, "what follows it cannot be fused with it")
        self.activation, self.norm = ACTIVATIONS.get(kind, self.activation), kind == NORM
        return True

    def used_by(self, node: Any, *, fits: bool) -> str:
        """The activation of a node that something may be fused with; an error if it waits for another one."""
        if (self.activation or self.norm) and (not fits or len(node.users) > 1):
            raise refused(node, "what follows it cannot be fused with it")
        activation, self.activation, self.norm = self.activation, "", False
        return activation


def module_of(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """The module that a node calls, if it calls one."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def refused(node: Any, why: str) -> TesseraError:
    """The error for a node that the grid does not plan."""
    return TesseraError(
        "an operation that the grid does not plan",
        got=f"{node.op} {node.target}: {why}",
        do="plan its convolutions one by one (--table)",
    )
