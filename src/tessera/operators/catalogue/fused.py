"""Operators that are commonly fused, written as their steps; beside them, how each can be had fused.

The definition's own expression is the unfused one, so that every backend can run it: compilers and graph optimisers
fuse it by themselves.
"""

from __future__ import annotations

from tessera.operators.catalogue.fused_chains import CHAINS
from tessera.operators.catalogue.fused_layers import LAYERS

OPERATORS = tuple(operator for operator, _ in (*LAYERS, *CHAINS))
FUSIONS = {operator.name: fusion for operator, fusion in (*LAYERS, *CHAINS)}


def fusions(operator: str) -> tuple[str, ...]:
    """The ways in which an operator can be had fused; an operator that is not known here has none."""
    if operator not in FUSIONS:
        return ()
    return ("compile", "library") if FUSIONS[operator].library else ("compile",)
