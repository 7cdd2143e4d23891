"""The networks of the benchmark, their files for the peers, and how much time is spent on them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from tessera.models import build, image_size_of

NETWORKS = ("resnet50", "efficientnet_b0", "efficientnet_b4", "resnext101_32x8d")
BATCHES = (1, 2, 4, 8, 16, 32)
PLACES = ((2, 1), (1, 2))  # processes and threads of each, on two cores


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds of interleaved bursts, and seconds of a tuning."""

    rounds: int
    tune_time: float


def onnx_file(network: str, folder: Path) -> Path:
    """The network as a plain export for the peers: none of our code between torch and the file."""
    import torch

    size, path = image_size_of(network), folder / f"{network}.onnx"
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
