"""Programs on JAX: jitted, the backward pass through `jax.vjp`."""

from __future__ import annotations

import re

from tessera.operators.backends import expression
from tessera.operators.preparation import inputs_of
from tessera.operators.repro.written import Written, drawn
from tessera.results.record import Case

WIDE = ("int64", "uint64", "float64", "complex128")
IMPORTS = """\
import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", {wide})"""
FORWARD = """\
@jax.jit
def forward({names}):
    return {expression}


def call():
    return jax.block_until_ready(forward({names}))"""
PULLED = '''\
def forward({names}):
    return {expression}


given = dict({given})
fixed = dict({fixed})


def pulled(given, fixed):
    """Floating-point outputs, their pullback to the given inputs, and all outputs."""

    def floats(given):
        leaves = jax.tree.leaves(forward(**given, **fixed))
        return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)], leaves

    return jax.vjp(floats, given, has_aux=True)


kept, pullback, outputs = jax.jit(pulled)(given, fixed)
weights = [jnp.asarray(np.random.default_rng(1).standard_normal(one.shape), dtype=one.dtype) for one in kept]'''
BACKWARD = """\
residuals, tree = jax.tree.flatten(pullback)


@jax.jit
def back(residuals, weights):
    return jax.tree.unflatten(tree, residuals)(weights)


def call():
    return jax.block_until_ready(back(residuals, weights))"""
BOTH = """\
@jax.jit
def both(given, fixed, weights):
    _, pullback, outputs = pulled(given, fixed)
    return outputs, pullback(weights)


def call():
    return jax.block_until_ready(both(given, fixed, weights))"""


def write(case: Case, threads: int) -> Written:
    """The operator as JAX has it."""
    _, inputs, _ = inputs_of(case)
    dtype, which, text = str(case.params["dtype"]), str(case.params["pass"]), expression("jax", case.name)
    made = {
        name: f"jnp.asarray({array}, dtype={dtype!r})" if inputs[name].kind == "float" else f"jnp.asarray({array})"
        for name, array in drawn(case).arrays.items()
    }
    if re.search(r"\brng\b", text):  # last: the arrays are drawn with the other one
        made["rng"] = f"jax.random.key({case.params['seed']})"
    if which == "forward":
        parts = [FORWARD.format(names=", ".join(made), expression=text)]
    else:
        given = [name for name, one in inputs.items() if one.differentiable]
        words = {
            "names": ", ".join(made),
            "given": ", ".join(f"{name}={name}" for name in given),
            "fixed": ", ".join(f"{name}={name}" for name in made if name not in given),
        }
        parts = [PULLED.format(expression=text, **words), BACKWARD if which == "backward" else BOTH]
    wide = dtype == "float64" or any(one.kind in WIDE for one in inputs.values())
    return Written(
        imports=IMPORTS.format(wide=wide),
        body=drawn(case).body(made, *parts),
        settings={
            "JAX_PLATFORMS": "cpu",
            "PJRT_NPROC": str(threads),
            "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'false' if threads == 1 else 'true'}",
        },
    )
