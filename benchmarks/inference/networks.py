"""Networks of the inference benchmarks, export of their ONNX files for the peers, and measuring effort."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from tessera.models import build, get_image_size

NETWORKS = ("resnet50", "efficientnet_b0", "efficientnet_b4", "resnext101_32x8d")
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
PLACEMENTS = ((2, 1), (1, 2))  # pairs of processes and threads per process, on two cores


@dataclass(frozen=True, slots=True)
class Effort:
    """The measuring effort: number of rounds of interleaved bursts, and seconds of a tuning."""

    rounds: int
    tune_time: float


def export_onnx(network: str, folder: Path) -> Path:
    """Export a network to an ONNX file for the peers, with torch's exporter and no code of Tessera."""
    import torch

    size, path = get_image_size(network), folder / f"{network}.onnx"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            build(network),
            (torch.zeros(1, 3, size, size),),
            str(path),
            dynamo=False,
            input_names=["images"],
            dynamic_axes={"images": {0: "batch"}},
        )
    return path
