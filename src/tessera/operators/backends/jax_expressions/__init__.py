"""How JAX writes the operators that it has: with a function of `jnp`, `jax` or `lax`, or a short expression of them.

Beside an operator's own names an expression may use `rng`, a key for random numbers. Operators in place do not exist
in JAX, nor do those whose outputs have a shape that depends on values.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.jax_expressions import (
    activation,
    arithmetic,
    convolution,
    creation,
    functions,
    fused,
    gemm,
    indexing,
    layers,
    linear_algebra,
    loss,
    misc,
    optimiser,
    random_sampling,
    recurrent,
    reduction,
    shaping,
)

PARTS = (
    arithmetic,
    functions,
    reduction,
    indexing,
    shaping,
    creation,
    random_sampling,
    gemm,
    convolution,
    layers,
    linear_algebra,
    activation,
    loss,
    recurrent,
    optimiser,
    misc,
    fused,
)


def jax_expressions() -> Mapping[str, str]:
    """Every operator that JAX has, by its name."""
    found: dict[str, str] = {}
    for part in PARTS:
        if twice := found.keys() & part.EXPRESSIONS.keys():
            raise ValueError(f"written twice for JAX: {', '.join(sorted(twice))}")
        found |= part.EXPRESSIONS
    return found
