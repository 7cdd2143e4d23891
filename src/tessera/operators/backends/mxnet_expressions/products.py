"""Products of matrices and vectors, and linear algebra."""

from __future__ import annotations

_LINEAR = "nd.FullyConnected(data, weight, bias, num_hidden=shapes['weight'][0])"
_EINSUMS = tuple(f"einsum_{name}" for name in ("matmul", "batched", "attention", "outer", "hadamard", "rows_dot"))

EXPRESSIONS = {
    **dict.fromkeys(("matmul", "mm", "matmul_tall", "matmul_deep", "matmul_rank_one", "mv"), "nd.dot(lhs, rhs)"),
    "matmul_transposed": "nd.dot(lhs, rhs, transpose_b=True)",
    "tensordot": "mnp.tensordot(lhs, rhs, axes=dims)",
    "bmm": "nd.batch_dot(lhs, rhs)",
    "matmul_batched": "mnp.matmul(lhs, rhs)",
    "matmul_broadcast": "mnp.matmul(lhs, rhs)",
    "matmul_vector": "mnp.matmul(lhs, rhs)",
    "baddbmm": "nd.linalg.gemm(lhs, rhs, bias)",
    "dot": "mnp.dot(lhs, rhs)",
    "inner": "mnp.inner(lhs, rhs)",
    "outer": "mnp.outer(lhs, rhs)",
    "inplace_addmm": "nd.linalg.gemm(lhs, rhs, bias, beta=0.5, out=bias)",
    "linear": _LINEAR,
    "linear_classifier": _LINEAR,
    "linear_no_bias": "nd.FullyConnected(data, weight, no_bias=True, num_hidden=shapes['weight'][0])",
    "linear_sequence": "nd.FullyConnected(data, weight, bias, num_hidden=shapes['weight'][0], flatten=False)",
    **dict.fromkeys(_EINSUMS, "mnp.einsum(equation, lhs, rhs)"),
    "einsum_sum": "mnp.einsum(equation, data)",
    "einsum_transpose": "mnp.einsum(equation, data)",
    "einsum_diagonal": "mnp.einsum(equation, data)",
    # linear algebra
    "linalg_norm": "mnp.linalg.norm(data)",
    "trace": "mnp.trace(data)",
    "linalg_diagonal": "nd.linalg.extractdiag(data)",
    "linalg_det": "nd.linalg.det(data)",
    "linalg_det_batched": "nd.linalg.det(data)",
    "linalg_slogdet": "nd.linalg.slogdet(data)",
    "linalg_cholesky": "nd.linalg.potrf(data)",
    "linalg_cholesky_batched": "nd.linalg.potrf(data)",
    "linalg_svd": "mnp.linalg.svd(data)",
    "linalg_eigh": "mnp.linalg.eigh(data)",
    "linalg_eigvalsh": "mnp.linalg.eigvalsh(data)",
    "linalg_inv": "nd.linalg.inverse(data)",
    "linalg_inv_batched": "nd.linalg.inverse(data)",
    "linalg_pinv": "mnp.linalg.pinv(data)",
    "cholesky_inverse": "nd.linalg.potri(data)",
    "linalg_tensorinv": "mnp.linalg.tensorinv(data, ind)",
    "linalg_solve": "mnp.linalg.solve(data, rhs)",
    "linalg_solve_batched": "mnp.linalg.solve(data, rhs)",
    "linalg_solve_triangular": "nd.linalg.trsm(data, rhs, lower=False)",
    "triangular_solve": "nd.linalg.trsm(data, rhs)",
    "linalg_tensorsolve": "mnp.linalg.tensorsolve(data, rhs)",
}
