"""A torch network as an ONNX file, once for all sizes of batch."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from tessera.errors import Refused, first_line
from tessera.inference.deployment.deployed import Deployment
from tessera.inference.networks.onnx_files import BATCH

OPSET = 18


def export(deployment: Deployment, path: Path) -> None:
    """Write the network as it is deployed. Constants and batch norms are folded on the way.

    This is torch's exporter by tracing: it folds batch norms itself and needs no further package.
    """
    example = torch.zeros(deployment.input_shape(2), dtype=getattr(torch, deployment.pixels.element))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a newer exporter, and where tracing takes a size as fixed
            torch.onnx.export(
                deployment.wide,
                (example,),
                str(path),
                dynamo=False,
                opset_version=OPSET,
                input_names=["images"],
                dynamic_axes={"images": {0: BATCH}},
            )
    except Exception as error:  # the exporter lets through whatever a module raises while it is traced
        raise Refused(f"{deployment.network.name} cannot be exported to ONNX: {first_line(error)}") from error
