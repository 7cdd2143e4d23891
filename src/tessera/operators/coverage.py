"""Coverage of torch's public operators: measured operators with their cases, and the reason for each missing one.

A *public operator* is a function that `torch.overrides` lists (overridable or not) under a public name in `torch`,
`torch.nn.functional`, `torch.linalg`, `torch.fft` or `torch.special`, or a method of `torch.Tensor` without a function
of the same name, such as `view`. An in-place method (`add_`) belongs to its operator; it counts separately only if
there is no other form (`uniform_`). Methods that begin with an underscore are Python's operators (`__add__`) and do not
count, except indexing.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, Literal

from tessera.operators.catalogue import list_torch_expressions
from tessera.operators.sources.opinfo_index import load_index

TORCH_NAMESPACES = ("", "nn.functional", "linalg", "fft", "special")  # modules inside torch; "" is torch itself
INDEXING_METHODS = ("__getitem__", "__setitem__")
NAMES_OF_PYTHON_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
    ast.USub: "neg",
    ast.Invert: "bitwise_not",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """The coverage of one public operator: in the catalogue, an alias of another name, in OpInfo only, or missing.

    `by` names the catalogue operators or OpInfo entries that measure the operator. `reason` says why it is not
    measured, or names the operator that it is an alias of.
    """

    name: str
    status: Literal["catalogue", "alias", "opinfo", "missing"]
    by: tuple[str, ...] = ()
    reason: str = ""


def compute_coverage() -> list[CoverageRow]:
    """Return the coverage of every public operator of the installed torch, in the order of the namespaces."""
    names = list_public_operators()
    catalogue = _map_to_catalogue(names)
    opinfo = _map_to_opinfo(names)
    same = _group_aliases(names)
    rows = []
    for name in names:
        others = [other for other in same.get(name, ()) if other != name]
        if name in catalogue:
            rows.append(CoverageRow(name=name, status="catalogue", by=catalogue[name]))
        elif aliased := next((other for other in others if other in catalogue), ""):
            rows.append(
                CoverageRow(name=name, status="alias", by=catalogue[aliased], reason=f"another name of {aliased}")
            )
        elif entries := next((opinfo[form] for form in (name, *others) if form in opinfo), ()):
            rows.append(CoverageRow(name=name, status="opinfo", by=entries))
        else:
            rows.append(CoverageRow(name=name, status="missing", reason=_find_reason(name)))
    return rows


def list_public_operators() -> list[str]:
    """Return the names of all public operators without `torch.`, such as `add`, `linalg.det` or `Tensor.view`."""
    import torch
    from torch.overrides import get_ignored_functions, get_overridable_functions

    overridable = get_overridable_functions()
    listed = {id(function) for functions in overridable.values() for function in functions}
    listed |= {id(function) for function in get_ignored_functions()}
    names: dict[str, None] = {}
    for namespace in TORCH_NAMESPACES:
        module: Any = torch
        for part in filter(None, namespace.split(".")):
            module = getattr(module, part)
        for name in sorted(torch.__all__ if module is torch else dir(module)):
            function = getattr(module, name, None)
            if name[0].islower() and not name.endswith("_") and id(function) in listed and _is_function(function):
                names[f"{namespace}.{name}".lstrip(".")] = None
    for name in sorted(dir(torch.Tensor)):
        form = name.rstrip("_")
        public = name in INDEXING_METHODS or name[0].islower()
        if public and _is_function(getattr(torch.Tensor, name)) and not names.keys() & {form, f"Tensor.{form}"}:
            names[f"Tensor.{name}"] = None
    return list(names)


def _is_function(value: Any) -> bool:
    """Return whether an object is a function or method, written in Python or C."""
    return isinstance(value, FunctionType | BuiltinFunctionType | MethodDescriptorType | WrapperDescriptorType)


def find_called_names(expression: str) -> set[str]:
    """Find the operators that an expression of the catalogue calls.

    >>> sorted(find_called_names("F.relu(torch.linalg.inv(data) @ other).view(-1)"))
    ['Tensor.view', 'linalg.inv', 'matmul', 'nn.functional.relu']
    """
    return {name for node in ast.walk(ast.parse(expression, mode="eval")) for name in _iter_names(node)}


def _iter_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield _get_dotted_name(node.func) or f"Tensor.{node.func.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield "Tensor.__getitem__"
    if isinstance(node, ast.BinOp | ast.Compare) or (isinstance(node, ast.UnaryOp) and not _is_number(node.operand)):
        for part in node.ops if isinstance(node, ast.Compare) else [node.op]:
            yield NAMES_OF_PYTHON_OPERATORS.get(type(part), "")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _get_dotted_name(node: ast.expr) -> str:
    """Return `linalg.inv` for `torch.linalg.inv`; empty for a method of a value, such as `data.view`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in ("torch", "F"):
        return ""
    return ".".join([*(["nn", "functional"] if node.id == "F" else []), *parts])


def _map_to_catalogue(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Map each public operator to the catalogue operators that call it."""
    known = set(names)
    operators: dict[str, tuple[str, ...]] = {}
    for operator, expression in list_torch_expressions().items():
        for called in find_called_names(expression):
            for name in _list_public_names(called):
                if name in known:
                    operators[name] = (*operators.get(name, ()), operator)
                    break
    return operators


def _list_public_names(called: str) -> list[str]:
    """Return the public names that may stand for a called name: method or function, in-place or not."""
    method = called.removeprefix("Tensor.")
    return list(dict.fromkeys([called, method, f"Tensor.{method.rstrip('_')}", method.rstrip("_")]))


def _map_to_opinfo(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    entries_of: dict[str, tuple[str, ...]] = {}
    for entry, info in load_index().items():
        for name in (info.operator, *info.aliases):
            entries_of[name] = (*entries_of.get(name, ()), entry)
    methods = {f"Tensor.{name}": entries for name, entries in entries_of.items()}
    in_place = {f"{name}_": entries for name, entries in methods.items()}
    everything = {**in_place, **methods, **entries_of}
    return {name: everything[name] for name in names if name in everything}


def _group_aliases(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Map each name to all names of its operator: other namespaces, and aliases from OpInfo and the data file."""
    groups: dict[str, dict[str, None]] = {}

    def merge_names(one: str, other: str) -> None:
        merged = groups.get(one, {one: None}) | groups.get(other, {other: None})
        groups.update(dict.fromkeys(merged, merged))

    for name in names:
        last = name.rpartition(".")[2]
        if not name.startswith(("Tensor.", "fft.")):
            merge_names(name, last)
    for info in load_index().values():
        for alias in info.aliases:
            merge_names(alias, info.operator)
    for alias, name in _load_data()["aliases"].items():
        merge_names(alias, name)
    return {name: list(group) for name, group in groups.items()}


def _find_reason(name: str) -> str:
    """Return the reason for not measuring an operator, found by its name or by the first matching pattern."""
    data = _load_data()
    if name in data["reasons"]:
        return str(data["reasons"][name])
    for rule in data["rules"]:
        if any(fnmatchcase(name, pattern) for pattern in rule["names"]):
            return str(rule["reason"])
    return ""


@cache
def _load_data() -> Mapping[str, Any]:
    return tomllib.loads((files("tessera.operators") / "data" / "coverage.toml").read_text())
