"""Post-training quantisation to int8: ONNX Runtime's own, calibrated on drawn images.

Weights are symmetric int8 by output channel, activations uint8. ONNX Runtime computes in int8 where both what goes into
an operator and what comes out is quantised. OpenVINO needs the inputs alone, and fuses what lies between two
convolutions, such as a swish, into the first one in float32: one rounding less, and far faster on EfficientNets.

On processors that add up pairs of products in sixteen bits (AVX2 and AVX-512 without VNNI), full weights can overflow
there; they get seven bits then.

Ranges are the least and the largest number that calibration saw, but for networks with sigmoids, whose swishes have
long tails: there a hundredth of a per cent is cut off, half of it at either end, which halves the error of
EfficientNet-B4.
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

from tessera.inference.arrays import Array
from tessera.inference.data.images import drawn_images
from tessera.inference.deployment.deployed import Deployment
from tessera.inference.networks.onnx_files import image_input

IMAGES = 32  # one of every kind
BATCH = 8
SEED = 4_321  # other images than those that agreement is measured on
# What gains from int8 in ONNX Runtime. A swish in between in float32 would take longer than the convolutions.
OPERATORS = (
    "Conv", "Gemm", "MatMul", "Add", "Mul", "Concat", "Sigmoid", "Relu", "Clip",
    "MaxPool", "AveragePool", "GlobalAveragePool",
)  # fmt: skip
LONG_TAILED, KEPT = ("Sigmoid", "HardSigmoid", "HardSwish"), 99.99  # per cent of the numbers that a range covers there
INPUTS_ONLY = ("Conv", "Gemm", "MatMul")  # for OpenVINO


def quantise(source: Path, target: Path, deployment: Deployment, *, outputs: bool) -> None:
    """Write the int8 network of a float32 one; `outputs` of operators are quantised as well, or their inputs alone."""
    operators = list(OPERATORS if outputs else INPUTS_ONLY)
    options: dict[str, Any] = {"OpTypesToExcludeOutputQuantization": [] if outputs else operators}
    with _imported() as quantization:
        model = onnx.load(source)
        # it is folded already; else it asks for that to be done
        quantization.quant_utils.add_pre_process_metadata(model)
        method = quantization.CalibrationMethod.MinMax
        if any(node.op_type in LONG_TAILED for node in model.graph.node):
            method = quantization.CalibrationMethod.Percentile
            # histograms of a batch at a time, in spite of the name: else all activations of all images are kept
            options |= {"CalibPercentile": KEPT, "CalibStridedMinMax": 1}
        quantization.quantize_static(
            model,
            target,
            _Images(image_input(model), deployment),
            calibrate_method=method,
            op_types_to_quantize=operators,
            per_channel=True,
            reduce_range=not has_vnni(),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            extra_options=options,
        )


def has_vnni() -> bool:
    """Whether the processor adds up products of 8 bits in 32 at once."""
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    return bool({"avx512_vnni", "avx_vnni"} & set(flags))


class _Images:
    """Calibration data as ONNX Runtime reads it: so many batches, or some of them at a time."""

    def __init__(self, images: onnx.ValueInfoProto, deployment: Deployment) -> None:
        batch = images.type.tensor_type.shape.dim[0].dim_value or BATCH
        count = -(-IMAGES // batch) * batch
        raw = drawn_images(count, deployment.network.image_shape, seed=SEED)
        made = np.empty(raw.shape, deployment.pixels.element)
        deployment.pixels.converted(raw, made)
        self._name = images.name
        self._batches: list[Array] = np.split(made, count // batch)
        self.set_range(0, len(self))

    def __len__(self) -> int:
        return len(self._batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._left = iter(self._batches[start_index:end_index])

    def get_next(self) -> dict[str, Array] | None:
        batch = next(self._left, None)
        return None if batch is None else {self._name: batch}


@contextmanager
def _imported() -> Iterator[Any]:
    """ONNX Runtime's quantisation, without the folder that it leaves on the path and without its advice."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    before = list(sys.path)
    from onnxruntime import quantization

    sys.path[:] = before
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with redirect_stdout(None):  # it prints what it is about
            yield quantization
    finally:
        logging.getLogger().setLevel(level)
