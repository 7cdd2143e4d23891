"""ONNX expressions (Python source) of operators: one ONNX node, or the few nodes that exporters write."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.onnx_expressions.data_movement import DATA_MOVEMENT_EXPRESSIONS
from tessera.operators.backends.onnx_expressions.elementwise import ELEMENTWISE_EXPRESSIONS
from tessera.operators.backends.onnx_expressions.layers import LAYER_EXPRESSIONS
from tessera.operators.backends.onnx_expressions.networks import NETWORK_EXPRESSIONS
from tessera.operators.backends.onnx_expressions.recurrent import RECURRENT_EXPRESSIONS
from tessera.operators.backends.onnx_expressions.reductions import REDUCTION_EXPRESSIONS
from tessera.operators.backends.onnx_expressions.signals import SIGNAL_EXPRESSIONS
from tessera.operators.catalogue import share_expressions

# operators with the torch expression of a supported operator that ONNX Runtime cannot run, or not exactly
OPERATORS_NOT_IN_ONNX = (
    *("matmul_complex", "linalg_matrix_norm_nuclear", "linalg_matrix_norm_spectral"),
    *("fft_fft_prime", "fft_fft_long", "fft_rfft_long"),
)


def list_onnx_expressions() -> Mapping[str, str]:
    """Return the ONNX expressions of all operators that ONNX supports, by operator name."""
    own = {
        **ELEMENTWISE_EXPRESSIONS,
        **REDUCTION_EXPRESSIONS,
        **DATA_MOVEMENT_EXPRESSIONS,
        **LAYER_EXPRESSIONS,
        **NETWORK_EXPRESSIONS,
        **RECURRENT_EXPRESSIONS,
        **SIGNAL_EXPRESSIONS,
    }
    return share_expressions(own, OPERATORS_NOT_IN_ONNX)
