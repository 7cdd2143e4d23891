"""The files that engines are given: every one made once in a run, whoever asks first, and removed with its folder."""

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
    """A folder of exported networks that replicas share. `seconds` is what this process spent on making them."""

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
        return self._made("export", deployment.identity, lambda path: _export(deployment, path))

    def quantised(self, deployment: Deployment) -> Path:
        """The network as an ONNX file in int8, calibrated on drawn images."""

        def make(path: Path) -> None:
            from tessera.inference.deployment.quantise import quantise

            quantise(self.onnx(deployment), path, deployment)

        return self._made("quantise", deployment.identity, make)

    def _made(self, what: str, identity: str, make: Callable[[Path], None]) -> Path:
        """The file of this identity; the first who asks makes it, and the others wait meanwhile."""
        name = f"{what}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        path = self.folder / f"{name}.onnx"
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                began, earlier = time.perf_counter(), sum(self.seconds.values())
                partial = self.folder / f"{name}.partial.onnx"
                make(partial)
                os.replace(partial, path)
                within = sum(self.seconds.values()) - earlier  # what another file took that was made for this one
                self.seconds[what] = time.perf_counter() - began - within
        return path


def _export(deployment: Deployment, path: Path) -> None:
    if deployment.network.file is not None:
        from tessera.inference.networks.onnx_files import write_settled

        write_settled(deployment.network.file, path, deployment.network.image_shape)
    else:
        from tessera.inference.deployment.export import export

        export(deployment, path)
