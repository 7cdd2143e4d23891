"""Check whether a network processes every sample of a batch independently, so that a batch can be split.

Only calls of functions on a list of sample-independent functions are accepted, with arguments that do not mix samples.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tessera.errors import TesseraError, get_first_line
from tessera.models.tracing import iadd, imul, isub, itruediv
from tessera.phased.memory.activations import Values
from tessera.phased.network.graph import get_input_dtype
from tessera.phased.network.programs import PhasedNetwork

# fmt: off
PER_SAMPLE_MODULES = (
    nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd, nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.modules.dropout._DropoutNd, nn.Linear, nn.Embedding, nn.GroupNorm, nn.LayerNorm, nn.Identity, nn.ReLU, nn.ReLU6,
    nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Hardswish, nn.Hardsigmoid,
)
ELEMENTWISE_CALLS: set[Any] = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, iadd, isub, imul, itruediv,
    torch.add, torch.sub, torch.mul, torch.relu, torch.tanh, torch.sigmoid, F.relu, F.gelu, F.silu,
    "add", "add_", "mul", "mul_", "relu", "relu_", "tanh", "sigmoid", "contiguous",
}
# fmt: on
MATRIX_PRODUCTS: set[Any] = {torch.matmul, operator.matmul, F.linear, "matmul"}
COMBINING_CALLS = ELEMENTWISE_CALLS | MATRIX_PRODUCTS
FLATTENING_CALLS: set[Any] = {torch.flatten, "flatten"}


def find_sample_mixing(network: PhasedNetwork) -> str:
    """Return a description of the first call that may mix samples; empty if there is none."""
    for node in network.graph.nodes:
        if node.op == "call_module":
            module = network.skeleton.model.get_submodule(str(node.target))
            if not _is_module_per_sample(module):
                return f"{node.target} ({type(module).__name__}) may mix samples"
        elif node.op in ("call_function", "call_method") and not _is_call_per_sample(node):
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
            return f"{node.name} ({name}) may mix samples"
    return _find_sample_free_result(network.graph)


def _find_sample_free_result(graph: fx.Graph) -> str:
    """Return a description of a result that depends on no input, or "": every part of a split batch repeats it."""
    dependent: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or (node.op != "get_attr" and dependent.intersection(node.all_input_nodes)):
            dependent.add(node)
        if node.op == "output" and (constant := [source for source in node.all_input_nodes if source not in dependent]):
            return f"{constant[0].name} does not depend on the samples"
    return ""


def find_moved_samples(network: PhasedNetwork, values: Values) -> str:
    """Return a description of the first call that moves samples out of the first dim; empty if there is none.

    Broadcasting can do so, because it aligns values with different numbers of dims at their last dims.
    """
    checker = _RankChecker(network.skeleton.model, graph=network.graph)
    checker.extra_traceback = False
    dtype = get_input_dtype(network.skeleton)
    inputs = [values[node.name] for node in network.graph.nodes if node.op == "placeholder"]
    try:
        with torch.no_grad():
            checker.run(*(_to_meta(value, dtype) for value in inputs))
    except Exception as error:
        raise TesseraError(f"the network does not run on this input: {get_first_line(error)}") from error
    return checker.reason


def _to_meta(value: Any, dtype: torch.dtype) -> Any:
    """Return a value on the meta device; floats get the dtype of the weightless model copy (`Skeleton`)."""
    if not isinstance(value, Tensor):
        return value
    return value.to("meta", dtype if value.is_floating_point() else value.dtype)


class _RankChecker(fx.Interpreter):
    """An interpreter on the meta device that checks the numbers of dims of values that a call combines."""

    reason = ""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if not self.reason and n.op in ("call_function", "call_method") and n.target in COMBINING_CALLS:
            joined = [self.env[source] for source in n.all_input_nodes if source.op != "get_attr"]
            ranks = {value.dim() for value in (*joined, result) if isinstance(value, Tensor)}
            if len(ranks) > 1:
                self.reason = f"{n.name} combines values of {' and '.join(map(str, sorted(ranks)))} dims"
        return result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return value.to("meta") if isinstance(value, Tensor) else value


def _is_module_per_sample(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return module.start_dim >= 1
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
        return False  # such a norm uses the statistics of the batch, also in evaluation mode
    return type(module).__module__.startswith("torch.nn.") and isinstance(module, PER_SAMPLE_MODULES)


def _is_call_per_sample(node: fx.Node) -> bool:
    if node.target in ELEMENTWISE_CALLS:
        return True
    if node.target in MATRIX_PRODUCTS:  # activations on the left, a weight on the right
        return len(node.args) >= 2 and all(isinstance(a, fx.Node) and a.op == "get_attr" for a in node.args[1:])
    if node.target in FLATTENING_CALLS:
        start = node.args[1] if len(node.args) > 1 else node.kwargs.get("start_dim", 0)
        return isinstance(start, int) and start >= 1
    if node.target is torch.cat:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        return isinstance(dim, int) and dim >= 1
    return False
