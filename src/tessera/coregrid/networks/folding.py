"""Batch norms folded into the convolutions before them, so that a layer is one operation."""

from __future__ import annotations

import copy

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def folded(module: nn.Module) -> fx.GraphModule:
    """The graph of a model in evaluation mode without those batch norms that follow a convolution."""
    graph = fx.symbolic_trace(copy.deepcopy(module).eval())
    for node in list(graph.graph.nodes):
        norm, before = _module(graph, node), node.args[0] if node.args else None
        if not isinstance(norm, nn.BatchNorm2d) or not isinstance(before, fx.Node) or len(before.users) > 1:
            continue
        conv = _module(graph, before)
        if isinstance(conv, nn.Conv2d):
            graph.set_submodule(str(before.target), fuse_conv_bn_eval(conv, norm))
            node.replace_all_uses_with(before)
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _module(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None
