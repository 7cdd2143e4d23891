"""Open a session: load the network, apply the precision, build it in an engine and run the first batch."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tessera.device import CPU, ComputeDevice, open_device, pick_device
from tessera.errors import MissingExtra, Refused
from tessera.inference.data.feed import ImageSource, InputFeed, PipelineFeed, ResidentFeed
from tessera.inference.data.folder import ImageFolder
from tessera.inference.data.images import GeneratedImages, PixelFormat
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.deployment.deployment import Deployment
from tessera.inference.engines import ANY_TORCH_DEVICE, ENGINES, load_engine
from tessera.inference.engines.engine import EngineRequest, Session
from tessera.inference.networks import InferenceNetwork, load_network
from tessera.inference.precision import PRECISIONS, Precision, has_float16
from tessera.inference.settings import (
    GENERATED_DATA,
    SYNTHETIC_DATA,
    Settings,
    count_io_threads,
    get_normalization_location,
    make_option_notes,
)
from tessera.measure.memory_limits import get_available_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSession:
    """An open session with its deployment, its exported files, the `seconds` of each opening step, and notes."""

    session: Session
    device: ComputeDevice
    deployment: Deployment
    artefacts: Artefacts
    seconds: dict[str, float]
    notes: tuple[str, ...]
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def compute_dtype(self) -> str:
        """The dtype of the arithmetic, which selects the machine's peak rate."""
        return self.session.compute

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> OpenedSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_session(
    settings: Settings, *, threads: int, artefacts: Artefacts | None = None, replica: int = 0
) -> OpenedSession:
    """Build a session for the batch size of the settings and run the first batch.

    `replica` is the number of the replica, which picks one of several devices.

    Exported files go to `artefacts`, which replicas share. If it is None, they go to a temporary folder that `close`
    removes.
    """
    with ExitStack() as stack:
        files = artefacts or stack.enter_context(Artefacts.create_temporary())
        build_session = load_engine(settings.engine)
        began = time.perf_counter()
        device = open_engine_device(settings, replica)
        deployment = plan_deployment(settings, device)
        seconds = {"network": time.perf_counter() - began}
        _check_memory(deployment, settings.batch_size)
        began, earlier = time.perf_counter(), dict(files.seconds)
        session = build_session(
            EngineRequest(
                deployment=deployment,
                artefacts=files,
                batch_size=settings.batch_size,
                threads=threads,
                device=device,
                device_choice=settings.device,
                replica=replica,
                hint=settings.hint,
                streams=settings.streams,
            )
        )
        stack.callback(session.close)
        took = time.perf_counter() - began
        exports = {step: spent for step, spent in files.seconds.items() if earlier.get(step) != spent}
        seconds |= exports | {"build": took - sum(exports.values())}
        began = time.perf_counter()
        session.run(
            session.prepare_input(
                np.zeros(deployment.compute_input_shape(settings.batch_size), deployment.pixels.dtype)
            )
        )
        seconds["first"] = time.perf_counter() - began
        return OpenedSession(
            session=session,
            device=device,
            deployment=deployment,
            artefacts=files,
            seconds=seconds,
            notes=_collect_notes(settings, deployment),
            _stack=stack.pop_all(),
        )


def open_feed(settings: Settings, opened: OpenedSession, *, in_use: int = 1) -> InputFeed:
    """Open the input feed of a session; `in_use` is the number of batches in flight (above 1 with streams)."""
    session, pixels, image_shape = opened.session, opened.deployment.pixels, opened.deployment.network.image_shape
    threads = count_io_threads(settings)
    source: ImageSource
    if settings.data in (GENERATED_DATA, SYNTHETIC_DATA):
        source = GeneratedImages(settings.batch_size, image_shape, session.layout, seed=settings.seed)
    else:
        workers = settings.dataloader_worker
        source = ImageFolder(Path(settings.data), settings.batch_size, image_shape, workers=workers, ahead=threads > 0)
    if settings.data == SYNTHETIC_DATA:
        return ResidentFeed(session, source, pixels)
    shape = (settings.batch_size, *image_shape)
    return PipelineFeed(session, source, pixels, shape=shape, threads=threads, in_use=in_use)


def open_engine_device(settings: Settings, replica: int = 0) -> ComputeDevice:
    """Open the torch device of a replica. Engines that do not run on torch devices get the CPU."""
    if ANY_TORCH_DEVICE not in ENGINES[settings.engine].devices:
        return open_device(CPU)
    return open_device(pick_device(settings.device, replica))


def plan_deployment(settings: Settings, device: ComputeDevice | None = None) -> Deployment:
    """Return the deployment of the network: input format and precision for the engine and the device.

    Raises:
        Refused: the engine or the ONNX file does not support the settings.
    """
    entry = ENGINES[settings.engine]
    if settings.precision == "int8" and find_spec("onnxruntime") is None:
        raise MissingExtra("onnxruntime", "onnxruntime")  # ONNX Runtime's quantiser is used for every engine
    network = load_network(settings)
    precision = PRECISIONS[settings.precision]
    if device is not None and device.asynchronous:
        _check_dtype(device, precision.compute)
    elif precision.compute == "float16" and not (entry.float16 and (has_float16() or settings.device != CPU)):
        precision = replace(precision, compute="float32")
    if settings.min_agreement:  # an explicit limit replaces both limits of the precision
        precision = replace(precision, min_top1=settings.min_agreement, max_error=math.inf)
    pixels = _choose_pixel_format(settings, network, precision)
    return Deployment(network=network, pixels=pixels, precision=precision, seed=settings.seed)


def _check_memory(deployment: Deployment, batch_size: int) -> None:
    """Raise an error if one batch of images alone exceeds the available memory."""
    image_bytes = math.prod(deployment.network.image_shape) * np.dtype(deployment.pixels.dtype).itemsize
    available = get_available_bytes()
    if batch_size * image_bytes > available:
        raise Refused(
            f"the images of one batch take {batch_size * image_bytes / 1e9:.1f} GB, "
            f"but {available / 1e9:.1f} GB of memory are available",
            got=f"--batch-size {batch_size}",
            allowed=f"at most {available // image_bytes}",
        )


def _check_dtype(device: ComputeDevice, dtype: str) -> None:
    import torch

    if not device.supports_dtype(getattr(torch, dtype)):
        raise Refused(f"{device.name} does not support the dtype", got=dtype, do="choose another --precision")


def _choose_pixel_format(settings: Settings, network: InferenceNetwork, precision: Precision) -> PixelFormat:
    """Return the input format of the network; an ONNX file determines its own."""
    channels, where = network.image_shape[0], get_normalization_location(settings)
    element = "uint8" if settings.eight_bit_io else precision.io
    if network.file is not None:
        if network.dtype != element:
            raise Refused(
                f"the ONNX file {network.name} requires images of dtype {network.dtype}",
                got=f"{element} (--precision {settings.precision}{' --eight-bit-io' * settings.eight_bit_io})",
                do="choose --precision and --eight-bit-io to match the file",
            )
        if where == "device":
            allowed = "none" if element == "uint8" else "host or none"
            raise Refused(
                f"the ONNX file {network.name} is run unchanged, so it cannot normalise pixels on the device",
                do=f"use --normalization-location {allowed}",
            )
    return PixelFormat(channels=channels, dtype=element, normalised_on=where)


def _collect_notes(settings: Settings, deployment: Deployment) -> tuple[str, ...]:
    """Return notes for the record about options, precision and random weights."""
    notes = [*make_option_notes(settings)]
    if storage := deployment.precision.explain_storage(inputs=deployment.pixels.dtype == "float16"):
        notes.append(storage)
    if deployment.has_fitted_weights:
        notes.append(
            "random weights: norms and last layer are fitted to generated images, so that predicted classes differ"
        )
    return tuple(notes)
