"""Post-training quantisation to int8: ONNX Runtime's own, calibrated on drawn images.

Weights are symmetric int8 by output channel, activations uint8. ONNX Runtime computes in int8 where both what goes into
an operator and what comes out is quantised. OpenVINO needs the inputs alone, and fuses what lies between two
convolutions, such as a swish, into the first one in float32: one rounding less, and far faster on EfficientNets.

On processors that add up pairs of products in sixteen bits (AVX2 and AVX-512 without VNNI), full weights can overflow
there; they get seven bits then.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
# What gains from int8 in ONNX Runtime. Sigmoids and products are left: gates of squeeze and excitation need their bits.
OPERATORS = ("Conv", "Gemm", "MatMul", "Add", "MaxPool", "AveragePool", "GlobalAveragePool", "Relu", "Clip", "Concat")
INPUTS_ONLY = ("Conv", "Gemm", "MatMul")  # for OpenVINO


def quantise(source: Path, target: Path, deployment: Deployment, *, outputs: bool) -> None:
    """Write the int8 network of a float32 one; `outputs` of operators are quantised as well, or their inputs alone."""
    operators = list(OPERATORS if outputs else INPUTS_ONLY)
    with _imported() as quantization:
        model = onnx.load(source)
        # it is folded already; else it asks for that to be done
        quantization.quant_utils.add_pre_process_metadata(model)
        name = image_input(model).name
        quantization.quantize_static(
            model,
            target,
            _Images(name, deployment, fixed=image_input(model).type.tensor_type.shape.dim[0].dim_value),
            op_types_to_quantize=operators,
            per_channel=True,
            reduce_range=not has_vnni(),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            extra_options={"OpTypesToExcludeOutputQuantization": [] if outputs else operators},
        )


def has_vnni() -> bool:
    """Whether the processor adds up products of 8 bits in 32 at once."""
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    return bool({"avx512_vnni", "avx_vnni"} & set(flags))


class _Images:
    """Calibration data as ONNX Runtime reads it."""

    def __init__(self, name: str, deployment: Deployment, *, fixed: int) -> None:
        batch = fixed or BATCH
        count = -(-IMAGES // batch) * batch
        raw = drawn_images(count, deployment.network.image_shape, seed=SEED)
        images = np.empty(raw.shape, deployment.pixels.element)
        deployment.pixels.converted(raw, images)
        self._name = name
        self._batches: Iterator[Array] = iter(np.split(images, count // batch))

    def get_next(self) -> dict[str, Array] | None:
        batch = next(self._batches, None)
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
        yield quantization
    finally:
        logging.getLogger().setLevel(level)
