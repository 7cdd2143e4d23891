"""Linear algebra in JAX."""

from __future__ import annotations

NORMS = {
    **{f"linalg_{name}": f"jnp.linalg.{name}(data)" for name in ("norm", "cond", "det", "slogdet", "diagonal")},
    **{
        f"linalg_matrix_norm{variant}": "jnp.linalg.matrix_norm(data, ord=ord)"
        for variant in ("", "_one", "_nuclear", "_spectral")
    },
    "linalg_vector_norm": "jnp.linalg.vector_norm(data, ord=ord, axis=dim)",
    "linalg_matrix_rank": "jnp.linalg.matrix_rank(data, rtol=rtol)",
    "linalg_det_batched": "jnp.linalg.det(data)",
    "logdet": "jnp.linalg.slogdet(data)[1]",
    "linalg_cross": "jnp.linalg.cross(lhs, rhs)",
    "linalg_vander": "jnp.vander(data, n, increasing=True)",
}
FACTORS = {
    **{
        f"linalg_{name}": f"jnp.linalg.{name}(data)"
        for name in ("cholesky", "qr", "svdvals", "eigh", "eigvalsh", "eig", "eigvals")
    },
    "linalg_cholesky_batched": "jnp.linalg.cholesky(data)",
    "linalg_householder_product": "lax.linalg.householder_product(data, tau)",
    "linalg_lu": "jax.scipy.linalg.lu(data)",
    "linalg_lu_factor": "(lambda packed, pivots: (packed, pivots + 1))(*jax.scipy.linalg.lu_factor(data))",
    "linalg_svd": "jnp.linalg.svd(data, full_matrices=False)",
}
SYSTEMS = {
    **{f"linalg_{name}": f"jnp.linalg.{name}(data)" for name in ("inv", "pinv")},
    "linalg_inv_batched": "jnp.linalg.inv(data)",
    "cholesky_inverse": "jax.scipy.linalg.cho_solve((data, True), jnp.eye(len(data), dtype=data.dtype))",
    "linalg_tensorinv": "jnp.linalg.tensorinv(data, ind)",
    "linalg_matrix_power": "jnp.linalg.matrix_power(data, n)",
    "linalg_matrix_exp": "jax.scipy.linalg.expm(data)",
    "linalg_solve": "jnp.linalg.solve(data, rhs)",
    "linalg_solve_batched": "jnp.linalg.solve(data, rhs)",
    "linalg_solve_triangular": "jax.scipy.linalg.solve_triangular(data, rhs)",
    "triangular_solve": "jax.scipy.linalg.solve_triangular(data, rhs, lower=True)",
    "cholesky_solve": "jax.scipy.linalg.cho_solve((data, True), rhs)",
    "linalg_lu_solve": "jax.scipy.linalg.lu_solve((data, pivots - 1), rhs)",
    "linalg_lstsq": "jnp.linalg.lstsq(data, rhs)[0]",
    "linalg_tensorsolve": "jnp.linalg.tensorsolve(data, rhs)",
}

EXPRESSIONS = NORMS | FACTORS | SYSTEMS
