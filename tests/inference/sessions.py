"""Test helpers that open small networks in engines."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tessera.inference.data.images import Array
from tessera.inference.engines import ENGINES
from tessera.inference.opening import OpenedSession, open_session
from tessera.inference.settings import Settings
from tests.inference.small_networks import IMAGE, build_classifier

INSTALLED_ENGINES = [
    name for name, entry in ENGINES.items() if not entry.find_missing() and entry.supports_device("cpu")
]
QUICK_ENGINES = [name for name in INSTALLED_ENGINES if not ENGINES[name].slow_start]
FILE_ENGINES = [name for name in INSTALLED_ENGINES if ENGINES[name].files]


def make_small_settings(network: str = "build_classifier", **given: Any) -> Settings:
    """Return the settings of a small network with a random seed and batch size."""
    defaults = {"image_size": IMAGE, "seed": random.randrange(2**31), "batch_size": random.randint(1, 5)}
    settings = Settings.of({"model": f"tests.inference.small_networks:{network}", **defaults, **given})
    print(settings)  # shows the random seed if the test fails
    return settings


def open_small_session(settings: Settings, **given: Any) -> OpenedSession:
    return open_session(settings, threads=1, **given)


def draw_images(session: OpenedSession, batch_size: int) -> Array:
    """Return random images in the engine's input format."""
    deployment = session.deployment
    raw = np.random.default_rng().integers(0, 256, deployment.compute_input_shape(batch_size), np.uint8)
    out = np.empty(raw.shape, deployment.pixels.dtype)
    deployment.pixels.convert(raw, out)
    return out


def compute_outputs(session: OpenedSession, images: Array) -> tuple[Array, ...]:
    arrays = session.session.read_outputs(session.session.run(session.session.prepare_input(images)))
    return tuple(array.copy() for array in arrays)


def compute_eager_outputs(session: OpenedSession, images: Array) -> tuple[Array, ...]:
    """Return the outputs of the session's network in torch eager mode in float32."""
    with torch.no_grad():
        result = session.deployment.float32_module(torch.from_numpy(images.copy()))
    parts = result if isinstance(result, tuple) else (result,)
    return tuple(part.float().numpy() for part in parts)


def export_small_network(path: Path, *, batch: str = "batch", size: str = "") -> str:
    """Export a small network to an ONNX file. Non-empty `batch` and `size` are the names of dynamic dimensions."""
    dims = {0: batch} if batch else {}
    if size:
        dims |= {2: f"{size}_h", 3: f"{size}_w"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the newer exporter
        torch.onnx.export(
            build_classifier().eval(),
            (torch.zeros(4, 3, IMAGE, IMAGE),),
            str(path),
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": dims},
        )
    return str(path)
