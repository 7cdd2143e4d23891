"""How OpenVINO writes the operators of the catalogue that it has: as one node, or as a few."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.openvino_expressions.elementwise import ELEMENTWISE
from tessera.operators.backends.openvino_expressions.fused import FUSED
from tessera.operators.backends.openvino_expressions.indexing import INDEXING
from tessera.operators.backends.openvino_expressions.layers import LAYERS
from tessera.operators.backends.openvino_expressions.networks import NETWORKS
from tessera.operators.backends.openvino_expressions.rearranging import REARRANGING
from tessera.operators.backends.openvino_expressions.recurrent import RECURRENT
from tessera.operators.backends.openvino_expressions.reductions import REDUCING
from tessera.operators.backends.openvino_expressions.signals import SIGNALS


def openvino_expressions() -> Mapping[str, str]:
    """How OpenVINO writes each operator, by the operator's name."""
    return {**ELEMENTWISE, **REDUCING, **INDEXING, **REARRANGING, **LAYERS, **NETWORKS, **RECURRENT, **SIGNALS, **FUSED}
