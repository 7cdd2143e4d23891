"""Backend for JAX: operators are jitted, backward passes come from `jax.vjp`, calls wait for their results."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
from jax import lax

from tessera.affinity import get_affinity
from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator, draw_output_gradients
from tessera.operators.expression import compile_expression

EXPRESSION_NAMES = {"jax": jax, "jnp": jnp, "lax": lax}
# dtypes that require JAX's 64-bit mode (x64)
X64_DTYPES = ("int64", "uint64", "float64", "complex128")
Arrays = dict[str, jax.Array]


class JaxBackend:
    """JAX on the CPU."""

    def __init__(self) -> None:
        # JAX reads these settings when it creates its CPU client, at the first computation
        jax.config.update("jax_platforms", "cpu")
        threads = os.environ.get("OMP_NUM_THREADS", str(len(get_affinity())))
        os.environ["PJRT_NPROC"] = threads
        # if a flag is repeated, the last value applies: this value overrides an inherited one
        flags = (
            os.environ.get("XLA_FLAGS", ""),
            f"--xla_cpu_multi_thread_eigen={'false' if threads == '1' else 'true'}",
        )
        os.environ["XLA_FLAGS"] = " ".join(flags).strip()

    def preload(self) -> None:
        """Do nothing: importing this module has imported JAX, and its CPU client must be created after the fork."""

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        # JAX supports 64-bit values only in its 64-bit mode (x64)
        wide = request.dtype == "float64" or any(array.dtype in X64_DTYPES for array in request.arrays.values())
        jax.config.update("jax_enable_x64", wide)
        inputs = to_jax_arrays(request)
        if re.search(r"\brng\b", expression):
            inputs["rng"] = jax.random.key(request.seed)
        run = compile_expression(expression, tuple(inputs), {**EXPRESSION_NAMES, **request.attributes})
        return (
            _prepare_forward(run, inputs) if request.pass_name == "forward" else _prepare_backward(request, run, inputs)
        )


def to_jax_arrays(request: OperatorRequest) -> Arrays:
    """Convert the inputs to JAX arrays; refuse non-contiguous inputs, which JAX would copy to its own layout."""
    inputs = {}
    for name, array in request.arrays.items():
        if not array.flags.c_contiguous:
            raise Refused(
                "JAX would copy non-contiguous inputs to its own layout", got=f"{name} with strides {array.strides}"
            )
        dtype = request.dtype if request.inputs[name].kind == "float" else array.dtype
        inputs[name] = jnp.asarray(array, dtype=dtype)
    return inputs


def _prepare_forward(run: Callable[..., Any], inputs: Arrays) -> PreparedOperator:
    call, result = _make_blocking_call(jax.jit(run), *inputs.values())
    return PreparedOperator(call=call, outputs=tuple(map(to_array, jax.tree.leaves(result))), gradients={})


def _prepare_backward(request: OperatorRequest, run: Callable[..., Any], inputs: Arrays) -> PreparedOperator:
    """Prepare the backward pass alone, from saved residuals, or forward and backward as one compiled program."""
    variables = {name: inputs[name] for name in request.differentiated}
    fixed = {name: array for name, array in inputs.items() if name not in variables}

    def linearise(variables: Arrays, fixed: Arrays) -> tuple[list[jax.Array], Callable[..., Any], list[jax.Array]]:
        """Return the floating-point outputs, the function that computes gradients of `variables`, and all outputs."""

        def compute_floats(variables: Arrays) -> tuple[list[jax.Array], list[jax.Array]]:
            leaves = jax.tree.leaves(run(**variables, **fixed))
            return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)], leaves

        floats, pullback, leaves = jax.vjp(compute_floats, variables, has_aux=True)
        return floats, pullback, leaves

    def run_both(variables: Arrays, fixed: Arrays, weights: list[jax.Array]) -> Any:
        # return the outputs too, because JAX does not compute unused outputs
        _, pullback, outputs = linearise(variables, fixed)
        return outputs, pullback(weights)

    floats, pullback, leaves = jax.jit(linearise)(variables, fixed)
    outputs = tuple(map(to_array, leaves))
    drawn = draw_output_gradients(outputs)
    # conjugate complex gradients: JAX differentiates Re(w dz), torch and our check differentiate Re(conj(w) dz)
    weights = [jnp.asarray(w.conj(), dtype=out.dtype) for w, out in zip(drawn, floats, strict=True)]
    residuals, tree = jax.tree.flatten(pullback)

    def run_backward(residuals: list[jax.Array], weights: list[jax.Array]) -> Any:
        return jax.tree.unflatten(tree, residuals)(weights)

    call, (gradients,) = _make_blocking_call(jax.jit(run_backward), residuals, weights)
    if request.pass_name == "both":
        call, (_, (gradients,)) = _make_blocking_call(jax.jit(run_both), variables, fixed, weights)
    return PreparedOperator(
        call=call,
        outputs=outputs,
        gradients={name: to_array(gradient).conj() for name, gradient in gradients.items()},
        output_gradients=drawn,
    )


def _make_blocking_call(run: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], Any]:
    """Run `run(*arguments)` once to compile it; return a call that repeats the run and waits, and the first result."""
    result = jax.block_until_ready(run(*arguments))
    if isinstance(result, jax.Array):  # faster wait: a tree traversal takes as long as a small operator
        return lambda: run(*arguments).block_until_ready(), result
    return lambda: jax.block_until_ready(run(*arguments)), result


def to_array(leaf: jax.Array) -> Array:
    """Convert a JAX array to NumPy; 16-bit floats become float32, which represents them exactly."""
    array = np.asarray(leaf)
    return array.astype(np.float32) if leaf.dtype in (jnp.bfloat16, jnp.float16) else array
