"""Calls that write into their first argument, and whether that is a tensor which a network holds."""

from __future__ import annotations

from torch import fx, nn

from tessera.errors import TesseraError
from tessera.models.structure import members
from tessera.models.tracing import WRITING

# What may give its first argument, or a part of it, in the memory that it lies in.
# fmt: off
VIEWS = {
    "alias", "as_strided", "bfloat16", "broadcast_tensors", "broadcast_to", "chunk", "contiguous", "cpu", "detach",
    "diagonal", "double", "dropout", "expand", "expand_as", "flatten", "float", "getattr", "getitem", "half",
    "hsplit", "imag", "moveaxis", "movedim", "narrow", "permute", "ravel", "real", "reshape", "reshape_as", "select",
    "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "to", "transpose", "type", "type_as", "unbind",
    "unflatten", "unfold", "unsqueeze", "view", "view_as", "vsplit", "__getitem__",
}
# fmt: on
VIEWING = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)


def refuse_writes(model: nn.Module, graph: fx.Graph) -> None:
    """Raise if a network writes into a weight, a buffer or a constant of its own.

    What was written would be gone with the phase, or be there in the next pass: it would depend on the budget.
    """
    held: dict[fx.Node, str] = {}  # values that lie in the memory of such a tensor, with its name
    for node in graph.nodes:
        if node.op == "get_attr":
            held[node] = str(node.target)
            continue
        if node.op == "call_module" and getattr(model.get_submodule(str(node.target)), "max_norm", None) is not None:
            raise TesseraError(f"{node.target} writes into its weight (max_norm), which would be gone with its phase")
        for written in _written(model, node):
            if written in held:
                raise TesseraError(
                    f"{type(model).__name__} writes into {held[written]}, which it holds, in its forward ({node.name})",
                    do="compute a new tensor instead: between phases only what is passed on is kept",
                )
        if _is_view(model, node) and (seen := [held[s] for s in members(node.args[:1], fx.Node) if s in held]):
            held[node] = seen[0]


def _written(model: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The values that a call writes into."""
    found = members(node.kwargs.get("out"), fx.Node)
    name = _name(node)
    if node.op == "call_module":
        in_place = bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    elif name.startswith("__"):  # as torch records what is done to a tensor that is no value of the trace
        in_place = name == "__setitem__" or name.strip("_") in WRITING
    else:
        in_place = name.endswith("_") or name in WRITING or bool(node.kwargs.get("inplace"))
    return found + (members(node.args[:1] or node.kwargs.get("input"), fx.Node) if in_place else [])


def _is_view(model: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(model.get_submodule(str(node.target)), VIEWING)
    return _name(node) in VIEWS


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))
