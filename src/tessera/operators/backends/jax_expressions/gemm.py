"""Products of matrices and vectors in JAX."""

from __future__ import annotations

MATRICES = (
    *("matmul", "mm", "bmm", "mv", "matmul_tall", "matmul_deep", "matmul_rank_one", "matmul_complex"),
    *("matmul_batched", "matmul_broadcast", "matmul_vector"),
)
LINEAR = "jnp.matmul(data, weight.T) + bias"

EXPRESSIONS = {
    **dict.fromkeys(MATRICES, "jnp.matmul(lhs, rhs)"),
    **{name: f"jnp.{name}(lhs, rhs)" for name in ("kron", "dot", "vdot", "inner", "outer")},
    "matmul_transposed": "jnp.matmul(lhs, rhs.mT)",
    "int_mm": "lax.dot(lhs, rhs, preferred_element_type=jnp.int32)",
    "linalg_multi_dot": "jnp.linalg.multi_dot((first, second, third))",
    "linalg_vecdot": "jnp.linalg.vecdot(lhs, rhs)",
    "tensordot": "jnp.tensordot(lhs, rhs, dims)",
    "baddbmm": "bias + jnp.matmul(lhs, rhs)",
    "addbmm": "bias + jnp.einsum('bij,bjk->ik', lhs, rhs)",
    "addr": "bias + jnp.outer(lhs, rhs)",
    "addmv": "bias + jnp.matmul(lhs, rhs)",
    "addmm": "bias + jnp.matmul(lhs, rhs)",
    "linear": LINEAR,
    "linear_no_bias": "jnp.matmul(data, weight.T)",
    "linear_sequence": LINEAR,
    "linear_classifier": LINEAR,
    "bilinear": "jnp.einsum('ni,oij,nj->no', lhs, weight, rhs) + bias",
}
