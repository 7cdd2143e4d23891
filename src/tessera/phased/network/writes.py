"""Detection of networks that write into their own weights, buffers or constants, which are not supported."""

from __future__ import annotations

from torch import fx, nn

from tessera.errors import TesseraError
from tessera.models.structure import collect_members
from tessera.models.tracing import IN_PLACE_OPERATORS

# Calls that may return their first argument, or a part of it, without a copy.
# fmt: off
VIEW_CALLS = {
    "alias", "as_strided", "bfloat16", "broadcast_tensors", "broadcast_to", "chunk", "contiguous", "cpu", "detach",
    "diagonal", "double", "dropout", "expand", "expand_as", "flatten", "float", "getattr", "getitem", "half",
    "hsplit", "imag", "moveaxis", "movedim", "narrow", "permute", "ravel", "real", "reshape", "reshape_as", "select",
    "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "to", "transpose", "type", "type_as", "unbind",
    "unflatten", "unfold", "unsqueeze", "view", "view_as", "vsplit", "__getitem__",
}
# fmt: on
VIEW_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)


def refuse_writes(model: nn.Module, graph: fx.Graph) -> None:
    """Raise an error if a network writes into one of its weights, buffers or constants.

    Depending on the budget, the written values would be lost with the phase or persist to the next pass.
    """
    owned: dict[fx.Node, str] = {}  # graph values that share memory with a weight, buffer or constant -> its name
    for node in graph.nodes:
        if node.op == "get_attr":
            owned[node] = str(node.target)
            continue
        if node.op == "call_module" and getattr(model.get_submodule(str(node.target)), "max_norm", None) is not None:
            raise TesseraError(f"{node.target} writes into its weight (max_norm), which PhasedModel does not support")
        for written in _list_written_nodes(model, node):
            if written in owned:
                raise TesseraError(
                    f"{type(model).__name__} writes into its tensor {owned[written]} in `forward` ({node.name})",
                    do="compute a new tensor instead",
                )
        sources = [owned[source] for source in collect_members(node.args[:1], fx.Node) if source in owned]
        if sources and _is_view(model, node):
            owned[node] = sources[0]


def _list_written_nodes(model: nn.Module, node: fx.Node) -> list[fx.Node]:
    """Return the graph values that a call writes into."""
    written = collect_members(node.kwargs.get("out"), fx.Node)
    name = _get_call_name(node)
    if node.op == "call_module":
        in_place = bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    elif name.startswith("__"):  # torch records operators on tensors outside of the trace this way
        in_place = name == "__setitem__" or name.strip("_") in IN_PLACE_OPERATORS
    else:
        in_place = name.endswith("_") or name in IN_PLACE_OPERATORS or bool(node.kwargs.get("inplace"))
    return written + (collect_members(node.args[:1] or node.kwargs.get("input"), fx.Node) if in_place else [])


def _is_view(model: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(model.get_submodule(str(node.target)), VIEW_MODULES)
    return _get_call_name(node) in VIEW_CALLS


def _get_call_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))
