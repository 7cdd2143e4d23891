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


def list_onnx_expressions() -> Mapping[str, str]:
    """Return the ONNX expressions of all operators that ONNX supports, by operator name."""
    return {
        **ELEMENTWISE_EXPRESSIONS,
        **REDUCTION_EXPRESSIONS,
        **DATA_MOVEMENT_EXPRESSIONS,
        **LAYER_EXPRESSIONS,
        **NETWORK_EXPRESSIONS,
        **RECURRENT_EXPRESSIONS,
        **SIGNAL_EXPRESSIONS,
    }
