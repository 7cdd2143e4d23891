"""The catalogue of operators: one definition per operator, one module per category or group of related categories."""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
from collections.abc import Collection, Iterable, Mapping, Sequence

from tessera.errors import TesseraError, suggest_similar
from tessera.launch.fresh import load_object
from tessera.operators.operator import Operator

# in the order of the catalogue; each module holds a tuple OPERATORS
CATALOGUE_MODULES = (
    "arithmetic",
    "comparison",
    "functions",
    "activation",
    "gemm",
    "linear_algebra",
    "convolution",
    "pooling",
    "normalisation",
    "loss",
    "recurrent",
    "attention",
    "embedding",
    "optimiser",
    "fft",
    "reduction",
    "sorting",
    "indexing",
    "joining",
    "shaping",
    "creation",
    "conversion",
    "quantised",
    "random_sampling",
    "misc",
    "fused",
)

OPERATOR_FILES_VARIABLE = (
    "TESSERA_OPERATORS"  # environment variable: path of a file with additional operators, for workers
)

MAX_SUGGESTIONS = 3  # similar names in the error for an unknown name

OPERATORS: dict[str, Operator] = {}
CANONICAL_NAMES: dict[str, str] = {}  # name or alias -> name of the operator


def register_operators(operators: Iterable[Operator]) -> None:
    """Add operators to the catalogue; raise an error if a name or alias is already used."""
    for operator in operators:
        for name in (operator.name, *operator.aliases):
            if name in CANONICAL_NAMES:
                raise ValueError(f"the name {name!r} of {operator.name} is already used by {CANONICAL_NAMES[name]}")
            CANONICAL_NAMES[name] = operator.name
        OPERATORS[operator.name] = operator


for _module in CATALOGUE_MODULES:
    register_operators(load_object(f"tessera.operators.catalogue.{_module}:OPERATORS"))


def load_operator_file(path: str) -> None:
    """Add the operators of a Python file, which defines a tuple OPERATORS."""
    try:
        operators = runpy.run_path(path).get("OPERATORS")
    except OSError as error:
        raise TesseraError("cannot read the operator file", got=path, do=str(error)) from None
    except Exception as error:
        raise TesseraError(f"the operator file raised an error: {type(error).__name__}: {error}", got=path) from None
    if operators is None:
        raise TesseraError("the operator file does not define a tuple OPERATORS", got=path)
    if not isinstance(operators, list | tuple) or not all(isinstance(one, Operator) for one in operators):
        raise TesseraError("OPERATORS must be a tuple of `Operator` objects", got=path)
    try:
        register_operators(operators)
    except ValueError as error:
        raise TesseraError(str(error), got=path) from None


def use_operator_file(path: str) -> None:
    """Add the operators of a file in this process and in all workers that are started later."""
    load_operator_file(path)
    os.environ[OPERATOR_FILES_VARIABLE] = os.path.abspath(path)


if path := os.environ.get(OPERATOR_FILES_VARIABLE):
    load_operator_file(path)


def group_by_category() -> dict[str, list[Operator]]:
    """Return the operators by category, in the order of the catalogue."""
    categories: dict[str, list[Operator]] = {}
    for operator in OPERATORS.values():
        categories.setdefault(operator.category, []).append(operator)
    return categories


def find_operators(patterns: Sequence[str] = (), category: Sequence[str] = ()) -> list[Operator]:
    """Find operators by name or glob, and by category; the error for an unknown name suggests similar names."""
    categories = group_by_category()
    matches: dict[str, Operator] = {}
    for name in category:
        if name not in categories:
            raise TesseraError("unknown category", got=name, allowed=categories)
        matches.update((operator.name, operator) for operator in categories[name])
    for pattern in patterns:
        names = [CANONICAL_NAMES[pattern]] if pattern in CANONICAL_NAMES else fnmatch.filter(OPERATORS, pattern)
        if not names:
            longer = sorted((name for name in OPERATORS if name.startswith(pattern)), key=len)[:MAX_SUGGESTIONS]
            do = f"did you mean {' or '.join(longer)}?" if longer else ""
            do = do or suggest_similar(pattern, CANONICAL_NAMES, "see `tessera list ops`")
            raise TesseraError("unknown operator", got=pattern, do=do)
        matches.update((name, OPERATORS[name]) for name in names)
    return list(matches.values())


def list_torch_expressions() -> Mapping[str, str]:
    """Return the torch expressions (Python source) of all operators, by operator name."""
    return {name: operator.torch for name, operator in OPERATORS.items() if operator.torch}


def list_compilable_expressions() -> Mapping[str, str]:
    """Return the torch expressions without a set-up, whose packed or quantised tensors cannot be compiled."""
    return {name: text for name, text in list_torch_expressions().items() if not OPERATORS[name].setup}


def list_numpy_expressions() -> Mapping[str, str]:
    """Return the reference expressions that use only NumPy, by operator name.

    An operator with a set-up is left out: its reference computes with other values than the operator, such as floats
    in place of quantised numbers.
    """
    others = re.compile(r"\b(ref|special|scipy)\.")
    return {name: op.reference for name, op in OPERATORS.items() if not others.search(op.reference) and not op.setup}


def share_expressions(own: Mapping[str, str], excluded: Collection[str] = ()) -> dict[str, str]:
    """Complete a backend's expressions: operators with the same torch expression share the expression of the first.

    For example, `sort_cols` has the expression of `sort`. `excluded` are operators that the backend cannot run.
    Variants with a channels-last layout are left out, because frameworks other than torch choose the layout.
    """
    first = {operator.torch: name for name, operator in reversed(OPERATORS.items())}
    return dict(own) | {
        name: own[first[operator.torch]]
        for name, operator in OPERATORS.items()
        if first[operator.torch] in own and name not in (*own, *excluded) and not name.endswith("_channels_last")
    }
