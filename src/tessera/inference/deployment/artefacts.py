"""The files of a run: each is made once, by whoever asks first, and removed with their folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tessera.inference.deployment.deployed import Deployment


class Artefacts:
    """A folder of exported networks, and of what is expected of them, that replicas share.

    `seconds` is what this process spent on making files, by their kind.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator[Artefacts]:
        """A folder of its own that is gone afterwards."""
        with TemporaryDirectory(prefix="tessera-infer-") as folder:
            yield cls(Path(folder))

    def onnx(self, deployment: Deployment) -> Path:
        """The network as an ONNX file: arithmetic in float32, batch norms folded, a dynamic batch where it can be."""
        return self.made("export.onnx", deployment.identity, lambda path: _export(deployment, path))

    def quantised(self, deployment: Deployment, *, outputs: bool) -> Path:
        """The network as an ONNX file in int8, calibrated on drawn images; `outputs` of operators are quantised too."""

        def make(path: Path) -> None:
            from tessera.inference.deployment.quantise import quantise

            quantise(self.onnx(deployment), path, deployment, outputs=outputs)

        return self.made("quantise.onnx", f"{deployment.identity}|{outputs}", make)

    def made(self, what: str, identity: str, make: Callable[[Path], None]) -> Path:
        """The file of a kind and an identity; the first who asks makes it, and the others wait meanwhile."""
        kind, _, suffix = what.partition(".")
        name = f"{kind}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        path = self.folder / f"{name}.{suffix}"
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                began, earlier = time.perf_counter(), sum(self.seconds.values())
                partial = self.folder / f"{name}.partial.{suffix}"
                make(partial)
                os.replace(partial, path)
                within = sum(self.seconds.values()) - earlier  # what another file took that was made for this one
                self.seconds[kind] = time.perf_counter() - began - within
        return path


def _export(deployment: Deployment, path: Path) -> None:
    if deployment.network.file is not None:
        from tessera.inference.networks.onnx_files import write_settled

        write_settled(deployment.network.file, path, deployment.network.image_shape)
    else:
        from tessera.inference.deployment.export import export

        export(deployment, path)
