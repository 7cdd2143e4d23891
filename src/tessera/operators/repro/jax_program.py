"""Writer of JAX programs: the operator is jitted, and the backward pass uses `jax.vjp`."""

from __future__ import annotations

import re

from tessera.operators.backends import get_expression
from tessera.operators.preparation import resolve_inputs
from tessera.operators.repro.program_text import ProgramText, format_inputs
from tessera.results.record import Case

# dtypes that require JAX's 64-bit mode (x64)
X64_DTYPES = ("int64", "uint64", "float64", "complex128")
IMPORTS_TEMPLATE = """\
import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", {wide})"""
FORWARD_TEMPLATE = """\
@jax.jit
def forward({names}):
    return {expression}


def call():
    return jax.block_until_ready(forward({names}))"""
PULLBACK_TEMPLATE = '''\
def forward({names}):
    return {expression}


given = dict({given})
fixed = dict({fixed})


def linearise(given, fixed):
    """Floating-point outputs, their pullback to the given inputs, and all outputs."""

    def floats(given):
        leaves = jax.tree.leaves(forward(**given, **fixed))
        return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)], leaves

    return jax.vjp(floats, given, has_aux=True)


kept, pullback, outputs = jax.jit(linearise)(given, fixed)
weights = [jnp.asarray(np.random.default_rng(1).standard_normal(one.shape), dtype=one.dtype) for one in kept]'''
BACKWARD_SOURCE = """\
residuals, tree = jax.tree.flatten(pullback)


@jax.jit
def back(residuals, weights):
    return jax.tree.unflatten(tree, residuals)(weights)


def call():
    return jax.block_until_ready(back(residuals, weights))"""
BOTH_PASSES_SOURCE = """\
@jax.jit
def both(given, fixed, weights):
    _, pullback, outputs = linearise(given, fixed)
    return outputs, pullback(weights)


def call():
    return jax.block_until_ready(both(given, fixed, weights))"""


def write_jax(case: Case, threads: int) -> ProgramText:
    """Return the program text of an operator in JAX."""
    _, inputs, _ = resolve_inputs(case)
    dtype, pass_name, text = str(case.params["dtype"]), str(case.params["pass"]), get_expression("jax", case.name)
    arrays = {
        name: f"jnp.asarray({array}, dtype={dtype!r})" if inputs[name].kind == "float" else f"jnp.asarray({array})"
        for name, array in format_inputs(case).arrays.items()
    }
    if re.search(r"\brng\b", text):  # rebind `rng` to a JAX key last: NumPy's `rng` draws the arrays before
        arrays["rng"] = f"jax.random.key({case.params['seed']!r})"
    if pass_name == "forward":
        parts = [FORWARD_TEMPLATE.format(names=", ".join(arrays), expression=text)]
    else:
        differentiated = [name for name, one in inputs.items() if one.differentiable]
        words = {
            "names": ", ".join(arrays),
            "given": ", ".join(f"{name}={name}" for name in differentiated),
            "fixed": ", ".join(f"{name}={name}" for name in arrays if name not in differentiated),
        }
        parts = [
            PULLBACK_TEMPLATE.format(expression=text, **words),
            BACKWARD_SOURCE if pass_name == "backward" else BOTH_PASSES_SOURCE,
        ]
    wide = dtype == "float64" or any(one.kind in X64_DTYPES for one in inputs.values())
    return ProgramText(
        imports=IMPORTS_TEMPLATE.format(wide=wide),
        body=format_inputs(case).format_body(arrays, *parts),
        settings={
            "JAX_PLATFORMS": "cpu",
            "PJRT_NPROC": str(threads),
            "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'false' if threads == 1 else 'true'}",
        },
    )
