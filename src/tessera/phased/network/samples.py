"""Whether a network treats every sample of a batch by itself, so that a batch can be divided.

Exact or refuse: only calls that are known to keep samples apart count, and of those only with arguments that do.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tessera.errors import TesseraError, first_line
from tessera.models.tracing import iadd, imul, isub, itruediv
from tessera.phased.memory.activations import Values
from tessera.phased.network.graph import input_dtype
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
    iadd,
    isub,
    imul,
    itruediv,
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
JOINING = ELEMENTWISE | PRODUCTS
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
    return _of_no_sample(network.graph)


def _of_no_sample(graph: fx.Graph) -> str:
    """A result that comes from no input, in words: every share would give it anew."""
    of_samples: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or (node.op != "get_attr" and of_samples.intersection(node.all_input_nodes)):
            of_samples.add(node)
        if node.op == "output" and (others := [one for one in node.all_input_nodes if one not in of_samples]):
            return f"{others[0].name} is not of the samples"
    return ""


def why_not_divided(network: Network, values: Values) -> str:
    """The first call that moves the samples of this mini-batch to another dim, in words; empty if there is none.

    Samples are those of the first dim. What is added to a value of more dims lies along its last ones.
    """
    run = _Ranks(network.skeleton.model, graph=network.graph)
    run.extra_traceback = False
    dtype = input_dtype(network.skeleton)
    inputs = [values[node.name] for node in network.graph.nodes if node.op == "placeholder"]
    try:
        with torch.no_grad():
            run.run(*(_bare(value, dtype) for value in inputs))
    except Exception as error:
        raise TesseraError(f"the network does not run on this input: {first_line(error)}") from error
    return run.why_not


def _bare(value: Any, dtype: torch.dtype) -> Any:
    """A value without its numbers, and like the skeleton's weights: those may be computed with in another dtype."""
    if not isinstance(value, Tensor):
        return value
    return value.to("meta", dtype if value.is_floating_point() else value.dtype)


class _Ranks(fx.Interpreter):
    """Follows a mini-batch on the meta device, and looks at the dims of what is joined."""

    why_not = ""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if not self.why_not and n.op in ("call_function", "call_method") and n.target in JOINING:
            joined = [self.env[source] for source in n.all_input_nodes if source.op != "get_attr"]
            ranks = {value.dim() for value in (*joined, result) if isinstance(value, Tensor)}
            if len(ranks) > 1:
                self.why_not = f"{n.name} joins values of {' and '.join(map(str, sorted(ranks)))} dims"
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return value.to("meta") if isinstance(value, Tensor) else value


def _module_apart(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return module.start_dim >= 1
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
        return False  # it takes the statistics of the batch, in evaluation mode as well
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
