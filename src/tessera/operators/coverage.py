"""Which of torch's public operators are measured, by what, and why the others are not.

A *public operator* is a function that torch itself lists in `torch.overrides`, among those that a tensor subclass can
override or those that it cannot, under a public name of `torch`, `torch.nn.functional`, `torch.linalg`, `torch.fft` or
`torch.special`; and a method of `torch.Tensor` that has no function of its name among them, such as `view`. A method in
place (`add_`) is a form of its operator, and an operator of its own only where there is no other form (`uniform_`).
Methods that begin with an underscore are Python's spelling of operators (`__add__`), except indexing, which has no
other.
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

from tessera.operators.catalogue import torch_expressions
from tessera.operators.sources.opinfo_index import index

NAMESPACES = ("", "nn.functional", "linalg", "fft", "special")  # under torch
INDEXING = ("__getitem__", "__setitem__")
SPELLED: Mapping[type[ast.AST], str] = {
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
class Row:
    """One public operator: measured by the catalogue, under another name, through OpInfo only, or missing.

    `by` names what measures it, in the catalogue or among OpInfo's entries; `reason` says why nothing does, or of what
    it is another form.
    """

    name: str
    status: Literal["catalogue", "alias", "opinfo", "missing"]
    by: tuple[str, ...] = ()
    reason: str = ""


def coverage() -> list[Row]:
    """Every public operator of the installed torch, in the order of its namespaces."""
    names = public_operators()
    catalogue = _measured_by_catalogue(names)
    opinfo = _measured_by_opinfo(names)
    same = _other_names(names)
    rows = []
    for name in names:
        others = [other for other in same.get(name, ()) if other != name]
        if name in catalogue:
            rows.append(Row(name=name, status="catalogue", by=catalogue[name]))
        elif known := next((other for other in others if other in catalogue), ""):
            rows.append(Row(name=name, status="alias", by=catalogue[known], reason=f"another name of {known}"))
        elif found := next((opinfo[one] for one in (name, *others) if one in opinfo), ()):
            rows.append(Row(name=name, status="opinfo", by=found))
        else:
            rows.append(Row(name=name, status="missing", reason=_reason(name)))
    return rows


def public_operators() -> list[str]:
    """The names of all public operators without `torch.`, such as `add`, `linalg.det` or `Tensor.view`."""
    import torch
    from torch.overrides import get_ignored_functions, get_overridable_functions

    overridable = get_overridable_functions()
    listed = {id(function) for functions in overridable.values() for function in functions}
    listed |= {id(function) for function in get_ignored_functions()}
    found: dict[str, None] = {}
    for namespace in NAMESPACES:
        module: Any = torch
        for part in filter(None, namespace.split(".")):
            module = getattr(module, part)
        for name in sorted(torch.__all__ if module is torch else dir(module)):
            function = getattr(module, name, None)
            if name[0].islower() and not name.endswith("_") and id(function) in listed and _is_function(function):
                found[f"{namespace}.{name}".lstrip(".")] = None
    for name in sorted(dir(torch.Tensor)):
        form = name.rstrip("_")
        public = name in INDEXING or name[0].islower()
        if public and _is_function(getattr(torch.Tensor, name)) and not found.keys() & {form, f"Tensor.{form}"}:
            found[f"Tensor.{name}"] = None
    return list(found)


def _is_function(thing: Any) -> bool:
    """Functions and methods, of Python or C; not classes, modules and attributes."""
    return isinstance(thing, FunctionType | BuiltinFunctionType | MethodDescriptorType | WrapperDescriptorType)


def names_in(expression: str) -> set[str]:
    """The operators that an expression of the catalogue calls.

    >>> sorted(names_in("F.relu(torch.linalg.inv(data) @ other).view(-1)"))
    ['Tensor.view', 'linalg.inv', 'matmul', 'nn.functional.relu']
    """
    return {name for node in ast.walk(ast.parse(expression, mode="eval")) for name in _names_of(node)}


def _names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield _path(node.func) or f"Tensor.{node.func.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield "Tensor.__getitem__"
    if isinstance(node, ast.BinOp | ast.Compare) or (isinstance(node, ast.UnaryOp) and not _is_number(node.operand)):
        for part in node.ops if isinstance(node, ast.Compare) else [node.op]:
            yield SPELLED.get(type(part), "")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _path(node: ast.expr) -> str:
    """`torch.linalg.inv` as `linalg.inv`; nothing when it is an attribute of a value, as `data.view` is."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in ("torch", "F"):
        return ""
    return ".".join([*(["nn", "functional"] if node.id == "F" else []), *parts])


def _measured_by_catalogue(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The operators of the catalogue that call each public one."""
    known = set(names)
    found: dict[str, tuple[str, ...]] = {}
    for operator, expression in torch_expressions().items():
        for called in names_in(expression):
            for name in _forms(called):
                if name in known:
                    found[name] = (*found.get(name, ()), operator)
                    break
    return found


def _forms(called: str) -> list[str]:
    """The names that a call may be listed under: a method as its function, one in place as the other form."""
    method = called.removeprefix("Tensor.")
    return list(dict.fromkeys([called, method, f"Tensor.{method.rstrip('_')}", method.rstrip("_")]))


def _measured_by_opinfo(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for entry, info in index().items():
        for name in (info.operator, *info.aliases):
            found[name] = (*found.get(name, ()), entry)
    methods = {f"Tensor.{name}": entries for name, entries in found.items()}
    in_place = {f"{name}_": entries for name, entries in methods.items()}
    everything = {**in_place, **methods, **found}
    return {name: everything[name] for name in names if name in everything}


def _other_names(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Names of one operator: of the same function in several namespaces, by OpInfo's word, or by ours."""
    groups: dict[str, dict[str, None]] = {}

    def join(one: str, other: str) -> None:
        merged = groups.get(one, {one: None}) | groups.get(other, {other: None})
        groups.update(dict.fromkeys(merged, merged))

    for name in names:
        last = name.rpartition(".")[2]
        if not name.startswith(("Tensor.", "fft.")):
            join(name, last)
    for info in index().values():
        for alias in info.aliases:
            join(alias, info.operator)
    for alias, name in _written_down()["aliases"].items():
        join(alias, name)
    return {name: list(group) for name, group in groups.items()}


def _reason(name: str) -> str:
    """Why nothing measures an operator: its own reason, or that of the first pattern it fits."""
    written = _written_down()
    if name in written["reasons"]:
        return str(written["reasons"][name])
    for rule in written["rules"]:
        if any(fnmatchcase(name, pattern) for pattern in rule["names"]):
            return str(rule["reason"])
    return ""


@cache
def _written_down() -> Mapping[str, Any]:
    return tomllib.loads((files("tessera.operators") / "data" / "coverage.toml").read_text())
