"""Post-training quantisation to int8 with ONNX Runtime's quantiser, calibrated on generated images.

Weights are symmetric int8 by output channel, activations uint8. ONNX Runtime computes an operator in int8 only if both
its inputs and its outputs are quantised. OpenVINO requires quantised inputs only. It fuses operators that follow a
convolution, such as SiLU, into that convolution in float32, which saves a rounding and is far faster on EfficientNets.

Processors without VNNI (AVX2, early AVX-512) add pairs of products in 16 bits, which can overflow with 8-bit weights.
On these processors weights are quantised to seven bits.

Activation ranges are the minimum and maximum over the calibration images. In networks with sigmoids, whose activations
have long tails, the range covers 99.99 % of the values instead, which halves the error of EfficientNet-B4.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tessera.inference.data.images import Array
from tessera.inference.deployment.deployment import Deployment
from tessera.inference.networks.onnx_files import get_image_input

CALIBRATION_IMAGES = 32  # one image of every kind
CALIBRATION_BATCH_SIZE = 8
CALIBRATION_SEED = 4_321  # differs from the seed of the agreement check
# Operators to quantise for ONNX Runtime, with their outputs. A float32 SiLU between them would take longer than the
# convolutions.
QUANTISED_OPERATORS = (
    "Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "Sigmoid", "Relu", "Clip",
    "MaxPool", "AveragePool", "GlobalAveragePool",
)  # fmt: skip
INPUT_QUANTISED_OPERATORS = ("Conv", "Gemm", "MatMul")  # operators to quantise for OpenVINO, without their outputs
LONG_TAILED_OPERATORS = ("Sigmoid", "HardSigmoid", "HardSwish")
RANGE_PERCENTILE = 99.99  # per cent of the values that the activation range of a network with these operators covers


def quantise_file(source: Path, target: Path, deployment: Deployment, *, outputs: bool) -> None:
    """Quantise the float32 ONNX file `source` to int8 and write it to `target`.

    With `outputs`, the outputs of operators are quantised too. `deployment` provides the calibration images.
    """
    operators = list(QUANTISED_OPERATORS if outputs else INPUT_QUANTISED_OPERATORS)
    options: dict[str, Any] = {"OpTypesToExcludeOutputQuantization": [] if outputs else operators}
    with _import_quantization() as quantization:
        model = onnx.load(source)
        # The export has optimised the graph already; without this metadata entry the quantiser prints a warning.
        quantization.quant_utils.add_pre_process_metadata(model)
        method = quantization.CalibrationMethod.MinMax
        if any(node.op_type in LONG_TAILED_OPERATORS for node in model.graph.node):
            method = quantization.CalibrationMethod.Percentile
            # Despite its name, this option computes histograms batch by batch instead of storing all activations.
            options |= {"CalibPercentile": RANGE_PERCENTILE, "CalibStridedMinMax": 1}
        quantization.quantize_static(
            model,
            target,
            _CalibrationReader(get_image_input(model), deployment),
            calibrate_method=method,
            op_types_to_quantize=operators,
            per_channel=True,
            reduce_range=not has_vnni(),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            extra_options=options,
        )


def has_vnni() -> bool:
    """Return whether the processor accumulates 8-bit products in 32 bits (VNNI)."""
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    return bool({"avx512_vnni", "avx_vnni"} & set(flags))


class _CalibrationReader:
    """Generated calibration images, with the interface of ONNX Runtime's CalibrationDataReader."""

    def __init__(self, images: onnx.ValueInfoProto, deployment: Deployment) -> None:
        batch = images.type.tensor_type.shape.dim[0].dim_value or CALIBRATION_BATCH_SIZE
        count = -(-CALIBRATION_IMAGES // batch) * batch
        shape = deployment.network.image_shape
        converted = deployment.pixels.generate_batch(count, shape, seed=CALIBRATION_SEED)
        self._name = images.name
        self._batches: list[Array] = np.split(converted, count // batch)
        self.set_range(0, len(self))

    def __len__(self) -> int:
        return len(self._batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._remaining = iter(self._batches[start_index:end_index])

    def get_next(self) -> dict[str, Array] | None:
        batch = next(self._remaining, None)
        return None if batch is None else {self._name: batch}


@contextmanager
def _import_quantization() -> Iterator[Any]:
    """Import ONNX Runtime's quantiser without its messages, and restore sys.path, which the import changes."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    before = list(sys.path)
    from onnxruntime import quantization

    sys.path[:] = before
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with redirect_stdout(None):  # the quantiser prints its progress
            yield quantization
    finally:
        logging.getLogger().setLevel(level)
