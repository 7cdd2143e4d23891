"""Files that replicas share, such as exported networks. The first replica that needs a file creates it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tessera.errors import Refused, get_first_line
from tessera.inference.deployment.deployment import Deployment
from tessera.inference.networks.loading import BATCH_DIM


class Artefacts:
    """A folder of exported networks and reference outputs that replicas share.

    `seconds` holds the seconds that this process spent on creating files, by kind of file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}

    @classmethod
    @contextmanager
    def create_temporary(cls) -> Iterator[Artefacts]:
        """Create a temporary folder of shared files; it is removed on exit from the context."""
        with TemporaryDirectory(prefix="tessera-infer-") as folder:
            yield cls(Path(folder))

    def export_onnx(self, deployment: Deployment) -> Path:
        """Export the network to a float32 ONNX file with folded batch norms and, if possible, a dynamic batch size."""
        return self.make_once("export.onnx", deployment.identity, lambda path: _write_onnx(deployment, path))

    def export_int8(self, deployment: Deployment, *, outputs: bool) -> Path:
        """Export the network to an int8 ONNX file.

        Weights and operator inputs are quantised; with `outputs` (required by ONNX Runtime), operator outputs too.
        """

        def write_int8(path: Path) -> None:
            from tessera.inference.deployment.quantise import quantise_file

            quantise_file(self.export_onnx(deployment), path, deployment, outputs=outputs)

        return self.make_once("quantise.onnx", f"{deployment.identity}|{outputs}", write_int8)

    def make_once(self, name_and_suffix: str, identity: str, make: Callable[[Path], None]) -> Path:
        """Return the path of a shared file, and create the file if it does not exist.

        `name_and_suffix` is `kind.suffix`, `identity` a string that determines the content, and `make(path)` writes the
        file. A lock makes concurrent callers wait, so that `make` runs once.
        """
        kind, _, suffix = name_and_suffix.partition(".")
        name = f"{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        path = self.folder / f"{name}.{suffix}"
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                began, earlier = time.perf_counter(), sum(self.seconds.values())
                partial = self.folder / f"{name}.partial.{suffix}"
                make(partial)
                os.replace(partial, path)
                within = sum(self.seconds.values()) - earlier  # `make` may create a further shared file
                self.seconds[kind] = time.perf_counter() - began - within
        return path


def _write_onnx(deployment: Deployment, path: Path) -> None:
    if deployment.network.file is None:
        export_module(deployment, path)
    else:
        from tessera.inference.networks.onnx_files import write_with_fixed_size  # requires the optional package onnx

        write_with_fixed_size(deployment.network.file, path, deployment.network.image_shape)


ONNX_OPSET = 18


def export_module(deployment: Deployment, path: Path) -> None:
    """Export a torch network to ONNX with a dynamic batch size, folding constants and batch norms.

    The tracing exporter of torch is used, because it folds batch norms and requires no other package.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the newer exporter and about constant sizes
            torch.onnx.export(
                deployment.float32_module,
                (deployment.make_zeros(2),),
                str(path),
                dynamo=False,
                opset_version=ONNX_OPSET,
                input_names=["images"],
                dynamic_axes={"images": {0: BATCH_DIM}},
            )
    except Exception as error:  # the exporter passes on whatever the traced module raises
        raise Refused(f"{deployment.network.name} cannot be exported to ONNX: {get_first_line(error)}") from error
