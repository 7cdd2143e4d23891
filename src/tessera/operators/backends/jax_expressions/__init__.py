"""JAX expressions (Python source of each operator): the NumPy reference with `jnp` for `np`, or source written for JAX.

An expression may use the operator's inputs and attributes, and `rng`, a JAX random key. JAX has no in-place operators
and no operators whose output shape depends on values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tessera.operators.backends.jax_expressions import data_movement, functions, layers, networks
from tessera.operators.catalogue import OPERATORS, share_expressions
from tessera.operators.expression import replace_modules

# module name in a reference expression -> module name in JAX
JAX_MODULE_NAMES = {"np": "jnp", "scipy": "jax.scipy", "special": "jax.scipy.special"}

# operators whose NumPy reference JAX cannot run
OPERATORS_NOT_IN_JAX = (
    # functions that JAX lacks
    *("special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1"),
    *("special_modified_bessel_k0", "special_modified_bessel_k1", "special_scaled_modified_bessel_k0"),
    *("special_scaled_modified_bessel_k1", "special_airy_ai", "special_chebyshev_polynomial_t"),
    *("special_chebyshev_polynomial_u", "special_shifted_chebyshev_polynomial_t"),
    *("special_shifted_chebyshev_polynomial_u", "special_hermite_polynomial_h", "special_hermite_polynomial_he"),
    *("special_laguerre_polynomial_l", "special_legendre_polynomial_p", "fft_hfft2", "fft_ihfft2", "fft_hfftn"),
    *("fft_ihfftn", "sgn", "gaussian_window", "cosine_window", "nuttall_window", "exponential_window"),
    *("embedding_bag_offsets_mean", "pdist", "linalg_cholesky_ex", "linalg_inv_ex", "linalg_solve_ex"),
    # output shapes that depend on values
    *("bincount", "bincount_weighted", "unique", "unique_float", "unique_counts", "unique_rows"),
    *("unique_consecutive", "masked_select", "boolean_mask", "nonzero", "nonzero_tuple", "argwhere"),
    "repeat_interleave_counts",
    # strides, and uninitialised arrays
    *("as_strided", "sliding_windows", "unfold_copy", "empty", "empty_like", "new_empty", "empty_strided"),
    *("empty_permuted", "clone_channels_last", "to_channels_last"),
    # float64 and int64, which JAX has only in its 64-bit mode
    *("float_power", "float_power_scalar", "to_float64", "to_int64", "bool_to_int64"),
    *("int64_add", "int64_multiply"),
    # conversions from and to Python and NumPy
    *("scalar_tensor", "tensor", "to_same", "to_numpy", "tolist", "item", "numpy_round_trip", "detach"),
)


def list_jax_expressions() -> Mapping[str, str]:
    """Return the JAX expressions of all operators that JAX supports, by operator name."""
    own: dict[str, str] = {}
    for module in (functions, data_movement, layers, networks):
        if repeated := own.keys() & module.EXPRESSIONS.keys():
            raise ValueError(f"several JAX expressions for one operator: {', '.join(sorted(repeated))}")
        own |= module.EXPRESSIONS
    # operators whose NumPy or SciPy reference also runs in JAX
    references = {
        name: replace_modules(operator.reference, JAX_MODULE_NAMES)
        for name, operator in OPERATORS.items()
        if name not in OPERATORS_NOT_IN_JAX
        and not name.startswith("inplace_")
        and not re.search(r"\bref\.", operator.reference)
        and not operator.setup
    }
    return {**references, **share_expressions(own, OPERATORS_NOT_IN_JAX)}
