"""The catalogue of operators: one file per category or family of categories, one definition per operator."""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
from collections.abc import Iterable, Mapping, Sequence

from tessera.errors import TesseraError, did_you_mean
from tessera.launch.fresh import resolve
from tessera.operators.operator import Operator

# in the order of the catalogue; each module holds a tuple OPERATORS
MODULES = (
    "arithmetic",
    "arithmetic_inplace",
    "comparison",
    "logical",
    "exponential",
    "special",
    "powers",
    "trigonometric",
    "rounding",
    "activation",
    "gemm",
    "linear_algebra",
    "linear_systems",
    "convolution",
    "pooling",
    "normalisation",
    "loss",
    "margin_loss",
    "recurrent",
    "attention",
    "embedding",
    "optimiser",
    "fft",
    "reduction",
    "sorting",
    "indexing",
    "indexing_writes",
    "joining",
    "shaping",
    "view_copies",
    "creation",
    "conversion",
    "random_sampling",
    "misc",
    "fused",
)

MORE = "TESSERA_OPERATORS"  # the variable that names a file with more operators, for workers

OPERATORS: dict[str, Operator] = {}
NAMES: dict[str, str] = {}  # every name and alias -> the operator's name


def register(operators: Iterable[Operator]) -> None:
    """Add operators to the catalogue; a name or alias is taken once."""
    for operator in operators:
        for name in (operator.name, *operator.aliases):
            if name in NAMES:
                raise ValueError(f"the name {name!r} of {operator.name} is taken by {NAMES[name]}")
            NAMES[name] = operator.name
        OPERATORS[operator.name] = operator


for _module in MODULES:
    register(resolve(f"tessera.operators.catalogue.{_module}:OPERATORS"))


def load(path: str) -> None:
    """Add the operators of a user's own Python file, in its tuple OPERATORS."""
    try:
        found = runpy.run_path(path).get("OPERATORS")
    except OSError as error:
        raise TesseraError("cannot read the operators", got=path, do=str(error)) from None
    except Exception as error:
        raise TesseraError(f"the operators do not load: {type(error).__name__}: {error}", got=path) from None
    if found is None:
        raise TesseraError("the file has no tuple OPERATORS", got=path)
    if not isinstance(found, list | tuple) or not all(isinstance(one, Operator) for one in found):
        raise TesseraError("OPERATORS is no tuple of operators", got=path)
    try:
        register(found)
    except ValueError as error:
        raise TesseraError(str(error), got=path) from None


def use(path: str) -> None:
    """Add a file's operators here and in all workers that are started from now on."""
    load(path)
    os.environ[MORE] = os.path.abspath(path)


if path := os.environ.get(MORE):
    load(path)


def categories() -> dict[str, list[Operator]]:
    """The operators by category, in the order of the catalogue."""
    found: dict[str, list[Operator]] = {}
    for operator in OPERATORS.values():
        found.setdefault(operator.category, []).append(operator)
    return found


def find(patterns: Sequence[str] = (), category: Sequence[str] = ()) -> list[Operator]:
    """Operators by name or glob, and by category; an unknown name is refused with the nearest ones."""
    known = categories()
    found: dict[str, Operator] = {}
    for name in category:
        if name not in known:
            raise TesseraError("unknown category", got=name, allowed=known)
        found.update((operator.name, operator) for operator in known[name])
    for pattern in patterns:
        names = [NAMES[pattern]] if pattern in NAMES else fnmatch.filter(OPERATORS, pattern)
        if not names:
            do = did_you_mean(pattern, NAMES, "see `tessera list ops`")
            raise TesseraError("unknown operator", got=pattern, do=do)
        found.update((name, OPERATORS[name]) for name in names)
    return list(found.values())


def torch_expressions() -> Mapping[str, str]:
    """How PyTorch writes each operator."""
    return {name: operator.torch for name, operator in OPERATORS.items() if operator.torch}


def numpy_expressions() -> Mapping[str, str]:
    """How NumPy writes those operators whose reference needs nothing else."""
    others = re.compile(r"\b(ref|special|scipy)\.")
    return {name: op.reference for name, op in OPERATORS.items() if not others.search(op.reference)}
