"""Whether a network treats every sample of a batch by itself, so that a batch can be divided.

Exact or refuse: only calls that are known to keep samples apart count, and of those only with arguments that do.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from tessera.phased.network.network import Network

APART = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.modules.dropout._DropoutNd,
    nn.Linear,
    nn.Embedding,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Hardswish,
    nn.Hardsigmoid,
)
ELEMENTWISE: set[Any] = {
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.neg,
    operator.iadd,
    operator.imul,
    torch.add,
    torch.sub,
    torch.mul,
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    F.relu,
    F.gelu,
    F.silu,
    "add",
    "add_",
    "mul",
    "mul_",
    "relu",
    "relu_",
    "tanh",
    "sigmoid",
    "contiguous",
}
PRODUCTS: set[Any] = {torch.matmul, operator.matmul, F.linear, "matmul"}
FLATTENING: set[Any] = {torch.flatten, "flatten"}


def why_not_by_sample(network: Network) -> str:
    """The first call that may mix samples, in words; empty if there is none."""
    for node in network.graph.nodes:
        if node.op == "call_module":
            module = network.skeleton.model.get_submodule(str(node.target))
            if not _module_apart(module):
                return f"{node.target} ({type(module).__name__}) may mix them"
        elif node.op in ("call_function", "call_method") and not _call_apart(node):
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
            return f"{node.name} ({name}) may mix them"
    return ""


def _module_apart(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return module.start_dim >= 1
    return type(module).__module__.startswith("torch.nn.") and isinstance(module, APART)


def _call_apart(node: fx.Node) -> bool:
    if node.target in ELEMENTWISE:
        return True
    if node.target in PRODUCTS:  # activations from the left, a weight from the right
        return len(node.args) >= 2 and all(isinstance(a, fx.Node) and a.op == "get_attr" for a in node.args[1:])
    if node.target in FLATTENING:
        start = node.args[1] if len(node.args) > 1 else node.kwargs.get("start_dim", 0)
        return isinstance(start, int) and start >= 1
    if node.target is torch.cat:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        return isinstance(dim, int) and dim >= 1
    return False
