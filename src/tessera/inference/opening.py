"""From settings to a network that is ready to run."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from tessera.errors import MissingExtra, Refused
from tessera.inference import meanings
from tessera.inference.data.pixels import Pixels
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.deployment.deployed import Deployment
from tessera.inference.engines import ENGINES, engine
from tessera.inference.engines.engine import Request, Session
from tessera.inference.networks import Network, load_network
from tessera.inference.precision import PRECISIONS, Precision, has_float16
from tessera.inference.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A session with what it runs, what it took to make it ready (`seconds` by step), and what to tell about it."""

    session: Session
    deployment: Deployment
    artefacts: Artefacts
    seconds: dict[str, float]
    notes: tuple[str, ...]
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def compute_dtype(self) -> str:
        """What it computes in: the rate of the machine to hold it against."""
        return self.session.compute

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_session(settings: Settings, *, threads: int, artefacts: Artefacts | None = None) -> Opened:
    """Make a network ready for batches of one size, and run the first one.

    Files go to `artefacts`, where other replicas find them; without, to a folder that is gone when this is closed.
    """
    with ExitStack() as stack:
        files = artefacts or stack.enter_context(Artefacts.temporary())
        maker = engine(settings.engine)
        began = time.perf_counter()
        deployment = deployment_of(settings)
        seconds = {"network": time.perf_counter() - began}
        began, made = time.perf_counter(), dict(files.seconds)
        session = maker.build(
            Request(
                deployment=deployment,
                artefacts=files,
                batch_size=settings.batch_size,
                threads=threads,
                hint=settings.hint,
                streams=settings.streams,
            )
        )
        stack.callback(session.close)
        took = time.perf_counter() - began
        files_made = {step: spent for step, spent in files.seconds.items() if made.get(step) != spent}
        seconds |= files_made | {"build": took - sum(files_made.values())}
        began = time.perf_counter()
        session.run(session.input(np.zeros(deployment.input_shape(settings.batch_size), deployment.pixels.element)))
        seconds["first"] = time.perf_counter() - began
        return Opened(
            session=session,
            deployment=deployment,
            artefacts=files,
            seconds=seconds,
            notes=_notes(settings, deployment),
            _stack=stack.pop_all(),
        )


def deployment_of(settings: Settings) -> Deployment:
    """How a network is deployed in the engine of the settings; what cannot be is refused."""
    entry = ENGINES[settings.engine]
    if settings.precision == "int8" and ENGINES["onnxruntime"].missing():
        raise MissingExtra("onnxruntime", "onnxruntime")  # which quantises, for every engine
    network = load_network(settings)
    if network.file is not None and not entry.files:
        able = [name for name, one in ENGINES.items() if one.files]
        raise Refused(f"{entry.title} runs torch modules, not ONNX files", do=f"use {' or '.join(able)}")
    precision = PRECISIONS[settings.precision]
    if precision.compute == "float16" and not (entry.float16 and has_float16()):
        precision = replace(precision, compute="float32")
    if settings.min_agreement:  # who says what share will do means that share alone
        precision = replace(precision, least_top1=settings.min_agreement, largest_error=math.inf)
    pixels = _pixels(settings, network, precision)
    return Deployment(network=network, pixels=pixels, precision=precision, seed=settings.seed)


def _pixels(settings: Settings, network: Network, precision: Precision) -> Pixels:
    """How images cross to the engine; an ONNX file says itself what it takes."""
    channels, where = network.image_shape[0], meanings.normalised_on(settings)
    element = "uint8" if settings.eight_bit_io else precision.io
    if network.file is not None:
        if network.element != element:
            raise Refused(
                f"{network.name} takes images as {network.element}",
                got=f"--precision {settings.precision}{' --eight-bit-io' * settings.eight_bit_io}, {element}",
                do="an ONNX file is run as it is",
            )
        if where == "device":
            allowed = "none" if element == "uint8" else "host or none"
            raise Refused(f"{network.name} is run as it is", do=f"give --normalization-location {allowed}")
    return Pixels(channels=channels, element=element, normalised_on=where)


def _notes(settings: Settings, deployment: Deployment) -> tuple[str, ...]:
    found = [*meanings.notes(settings)]
    if told := deployment.precision.note(inputs=deployment.pixels.element == "float16"):
        found.append(told)
    if deployment.fitted:
        found.append("random weights: norms and last layer are fitted to drawn images, so that answers differ")
    return tuple(found)
