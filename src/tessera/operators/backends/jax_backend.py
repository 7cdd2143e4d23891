"""JAX: every operator jitted, its backward pass through `jax.vjp`; a call returns when its result is there."""

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

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared, Request, output_gradients
from tessera.operators.expression import function

NAMES = {"jax": jax, "jnp": jnp, "lax": lax}
WIDE = ("int64", "uint64", "float64", "complex128")
Arrays = dict[str, jax.Array]


class JaxBackend:
    """JAX on the CPU."""

    def __init__(self) -> None:
        # importing JAX starts nothing: all of this is read when its CPU client is made, at the first computation
        jax.config.update("jax_platforms", "cpu")
        threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        os.environ["PJRT_NPROC"] = threads
        # the last of equal flags counts, so one that was inherited does not
        flags = (
            os.environ.get("XLA_FLAGS", ""),
            f"--xla_cpu_multi_thread_eigen={'false' if threads == '1' else 'true'}",
        )
        os.environ["XLA_FLAGS"] = " ".join(flags).strip()

    def preload(self) -> None:
        """The imports of this module are all there is to do before a client is made."""

    def prepare(self, request: Request, expression: str) -> Prepared:
        # 64-bit numbers stay what they are only where JAX is told so
        wide = request.dtype == "float64" or any(array.dtype in WIDE for array in request.arrays.values())
        jax.config.update("jax_enable_x64", wide)
        inputs = to_jax(request)
        if re.search(r"\brng\b", expression):
            inputs["rng"] = jax.random.key(request.seed)
        run = function(expression, tuple(inputs), {**NAMES, **request.attributes})
        return _forward(run, inputs) if request.which == "forward" else _backward(request, run, inputs)


def to_jax(request: Request) -> Arrays:
    """The inputs as JAX's arrays, which have one layout only."""
    found = {}
    for name, array in request.arrays.items():
        if not array.flags.c_contiguous:
            raise Refused("JAX copies its inputs into a layout of its own", got=f"{name} with strides {array.strides}")
        dtype = request.dtype if request.inputs[name].kind == "float" else array.dtype
        found[name] = jnp.asarray(array, dtype=dtype)
    return found


def _forward(run: Callable[..., Any], inputs: Arrays) -> Prepared:
    call, result = _waited(jax.jit(run), *inputs.values())
    return Prepared(call=call, outputs=tuple(map(to_array, jax.tree.leaves(result))), gradients={})


def _backward(request: Request, run: Callable[..., Any], inputs: Arrays) -> Prepared:
    """The backward pass alone starts from what the forward pass kept; both are one program."""
    given = {name: inputs[name] for name in request.differentiated}
    fixed = {name: array for name, array in inputs.items() if name not in given}

    def pulled(given: Arrays, fixed: Arrays) -> tuple[list[jax.Array], Callable[..., Any], list[jax.Array]]:
        """Floating-point outputs, their pullback to the given inputs, and all outputs in order."""

        def floats(given: Arrays) -> tuple[list[jax.Array], list[jax.Array]]:
            leaves = jax.tree.leaves(run(**given, **fixed))
            return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)], leaves

        found: tuple[list[jax.Array], Callable[..., Any], list[jax.Array]] = jax.vjp(floats, given, has_aux=True)
        return found

    def both(given: Arrays, fixed: Arrays, weights: list[jax.Array]) -> Any:
        # the outputs are results too: what nobody asks for would not be computed
        _, pullback, outputs = pulled(given, fixed)
        return outputs, pullback(weights)

    kept, pullback, leaves = jax.jit(pulled)(given, fixed)
    outputs = tuple(map(to_array, leaves))
    wanted = output_gradients(outputs)
    # JAX pulls back along Re(w dz), the check and torch along Re(conj(w) dz): the same for real numbers
    weights = [jnp.asarray(w.conj(), dtype=out.dtype) for w, out in zip(wanted, kept, strict=True)]
    residuals, tree = jax.tree.flatten(pullback)

    def back(residuals: list[jax.Array], weights: list[jax.Array]) -> Any:
        return jax.tree.unflatten(tree, residuals)(weights)

    call, (gradients,) = _waited(jax.jit(back), residuals, weights)
    if request.which == "both":
        call, (_, (gradients,)) = _waited(jax.jit(both), given, fixed, weights)
    return Prepared(
        call=call,
        outputs=outputs,
        gradients={name: to_array(gradient).conj() for name, gradient in gradients.items()},
        output_gradients=wanted,
    )


def _waited(run: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], Any]:
    """A call that returns when its result is there, and the first result: compiling is done with it."""
    result = jax.block_until_ready(run(*arguments))
    if isinstance(result, jax.Array):  # asked directly: a walk over a tree takes as long as a small operator
        return lambda: run(*arguments).block_until_ready(), result
    return lambda: jax.block_until_ready(run(*arguments)), result


def to_array(leaf: jax.Array) -> Array:
    """A result as an array; 16-bit floats become float32, which holds them exactly."""
    array = np.asarray(leaf)
    return array.astype(np.float32) if leaf.dtype in (jnp.bfloat16, jnp.float16) else array
