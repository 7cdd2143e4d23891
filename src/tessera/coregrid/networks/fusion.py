"""Fusion of batch norms and activation functions into the preceding layer."""

from __future__ import annotations

import copy
from typing import Any

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tessera.errors import TesseraError

# Activation functions that can be fused into the preceding layer, by the class name of the torch module.
ACTIVATION_NAMES = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SiLU": "silu",
    "Hardswish": "hardswish",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
}
BATCH_NORM_CLASS = "BatchNorm2d"
NO_OP_CLASSES = ("Identity", "Dropout")  # no effect in evaluation mode


class PendingFusion:
    """Batch norm and activation that a backward walk of the graph has found, to be fused into the preceding layer.

    Fusion requires that no other node reads the intermediate values.
    """

    def __init__(self) -> None:
        self.activation, self.norm = "", False

    def try_add(self, graph: fx.GraphModule, node: fx.Node) -> bool:
        """Record a batch norm or activation as pending. Return False if the node is neither of them nor a no-op."""
        kind = type(get_module(graph, node)).__name__
        if kind in NO_OP_CLASSES:
            return True
        if kind not in ACTIVATION_NAMES and kind != BATCH_NORM_CLASS:
            return False
        if self.norm or (self.activation and kind in ACTIVATION_NAMES):
            raise build_unsupported_error(node, "it does not follow a convolution, linear layer or sum")
        if (self.activation or self.norm) and len(node.users) > 1:
            raise build_unsupported_error(node, "the operation after it cannot be fused into it")
        self.activation, self.norm = ACTIVATION_NAMES.get(kind, self.activation), kind == BATCH_NORM_CLASS
        return True

    def take_activation(self, node: Any, *, fits: bool) -> str:
        """Return and clear the pending activation. Raises an error if it cannot be fused into the layer of `node`."""
        if (self.activation or self.norm) and (not fits or len(node.users) > 1):
            raise build_unsupported_error(node, "the operation after it cannot be fused into it")
        activation, self.activation, self.norm = self.activation, "", False
        return activation


def get_module(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """Return the module that a graph node calls, or None if the node calls no module."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def build_unsupported_error(node: Any, why: str) -> TesseraError:
    """Build the error for a graph node that the core grid does not support."""
    return TesseraError(
        "the core grid cannot plan this operation",
        got=f"{node.op} {node.target}: {why}",
        do="plan its convolutions one by one (--table)",
    )


def fold_batch_norms(module: nn.Module) -> fx.GraphModule:
    """Return the graph of a model in evaluation mode, with batch norms folded into the preceding convolutions."""
    graph = fx.symbolic_trace(copy.deepcopy(module).eval())
    for node in list(graph.graph.nodes):
        norm, before = get_module(graph, node), node.args[0] if node.args else None
        if not isinstance(norm, nn.BatchNorm2d) or not isinstance(before, fx.Node) or len(before.users) > 1:
            continue
        conv = get_module(graph, before)
        if isinstance(conv, nn.Conv2d):
            graph.set_submodule(str(before.target), fuse_conv_bn_eval(conv, norm))
            node.replace_all_uses_with(before)
            graph.graph.erase_node(node)
    graph.recompile()
    return graph
