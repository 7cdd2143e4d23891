"""Opening small networks in engines, for tests."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tessera.inference.arrays import Array
from tessera.inference.engines import ENGINES
from tessera.inference.opening import Opened, open_session
from tessera.inference.settings import Settings
from tests.inference.small import IMAGE, classifier

INSTALLED = [name for name, entry in ENGINES.items() if not entry.missing()]
QUICK = [name for name in INSTALLED if name != "torch-compile"]  # which compiles for seconds
FILES = [name for name in INSTALLED if ENGINES[name].files]


def small(network: str = "classifier", **given: Any) -> Settings:
    """Settings of a small network with weights of a new seed."""
    usual = {"image_size": IMAGE, "seed": random.randrange(2**31), "batch_size": random.randint(1, 5)}
    settings = Settings.of({"model": f"tests.inference.small:{network}", **usual, **given})
    print(settings)  # the seed of a failure
    return settings


def opened(settings: Settings, **given: Any) -> Opened:
    return open_session(settings, threads=1, **given)


def random_images(session: Opened, batch_size: int) -> Array:
    """Fresh images as they cross to the engine."""
    deployment = session.deployment
    raw = np.random.default_rng().integers(0, 256, deployment.input_shape(batch_size), np.uint8)
    out = np.empty(raw.shape, deployment.pixels.element)
    deployment.pixels.converted(raw, out)
    return out


def outputs(session: Opened, images: Array) -> tuple[Array, ...]:
    found = session.session.outputs(session.session.run(session.session.input(images)))
    return tuple(array.copy() for array in found)


def eager(session: Opened, images: Array) -> tuple[Array, ...]:
    """What the network gives in plain torch, float32."""
    with torch.no_grad():
        result = session.deployment.reference(torch.from_numpy(images.copy()))
    parts = result if isinstance(result, tuple) else (result,)
    return tuple(part.float().numpy() for part in parts)


def exported(path: Path, *, batch: str = "batch", size: str = "") -> str:
    """A small network as an ONNX file; dims that are named are dynamic."""
    dims = {0: batch} if batch else {}
    if size:
        dims |= {2: f"{size}_h", 3: f"{size}_w"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a newer exporter
        torch.onnx.export(
            classifier().eval(),
            (torch.zeros(4, 3, IMAGE, IMAGE),),
            str(path),
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": dims},
        )
    return str(path)
