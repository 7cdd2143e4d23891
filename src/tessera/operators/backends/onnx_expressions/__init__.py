"""How ONNX writes the operators of the catalogue that it has: as one node, or as the few that exporters write."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.onnx_expressions.elementwise import ELEMENTWISE
from tessera.operators.backends.onnx_expressions.fused import FUSED
from tessera.operators.backends.onnx_expressions.indexing import INDEXING
from tessera.operators.backends.onnx_expressions.layers import LAYERS
from tessera.operators.backends.onnx_expressions.networks import NETWORKS
from tessera.operators.backends.onnx_expressions.rearranging import REARRANGING
from tessera.operators.backends.onnx_expressions.recurrent import RECURRENT
from tessera.operators.backends.onnx_expressions.reductions import REDUCING
from tessera.operators.backends.onnx_expressions.signals import SIGNALS


def onnx_expressions() -> Mapping[str, str]:
    """How ONNX writes each operator, by the operator's name."""
    return {**ELEMENTWISE, **REDUCING, **INDEXING, **REARRANGING, **LAYERS, **NETWORKS, **RECURRENT, **SIGNALS, **FUSED}
