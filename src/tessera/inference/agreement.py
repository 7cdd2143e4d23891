"""Whether an engine gives the answers of the network: its outputs against torch eager in float32, before it is timed.

Two figures, on drawn images (see `data.images`): the share of images for which both give the same answer (the class of
the highest score; of a network with an output for every pixel, the share of pixels), and the relative error of all
outputs. An ONNX file has no torch module; it is held against ONNX Runtime without any optimisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tessera.errors import Refused
from tessera.inference.arrays import Array
from tessera.inference.data.images import KINDS, drawn_images
from tessera.inference.deployment.deployed import Deployment
from tessera.inference.engines.engine import Session
from tessera.inference.opening import Opened
from tessera.inference.settings import Settings

SEED = 1_234  # other images than those that weights are fitted to or int8 is calibrated on
FEW, MANY = 8, 2 * KINDS  # images: where rounding should change no answer, and where it may

Outputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far an engine gives what the reference (`against`) gives, and how far it has to.

    `answers` is how many different ones the reference has: with one alone, agreeing is no feat.
    """

    images: int
    top1: float
    error: float
    answers: int
    least_top1: float
    largest_error: float
    against: str

    @property
    def holds(self) -> bool:
        return self.top1 >= self.least_top1 and self.error <= self.largest_error

    def __str__(self) -> str:
        return f"top-1 agreement {self.top1:.1%} on {self.images} images, relative error {self.error:.2g}"


def agreement(settings: Settings, opened: Opened) -> Agreement:
    """Run drawn images through a session; one that does not agree with its reference is refused."""
    precision, size = opened.deployment.precision, settings.batch_size
    wanted = MANY if precision.weights == "int8" else FEW
    images = _images(opened.deployment, -(-wanted // size) * size)
    found = _joined([_run(opened.session, batch) for batch in np.split(images, len(images) // size)], wanted)
    expected, against = _expected(opened, images, wanted, size)
    top1, error, answers = compared(found, expected, tie=precision.tie)
    measured = Agreement(
        images=wanted,
        top1=top1,
        error=error,
        answers=answers,
        least_top1=precision.least_top1,
        largest_error=precision.largest_error,
        against=against,
    )
    if not measured.holds:
        raise Refused(
            f"{settings.engine} in {precision.name} does not agree with {against}",
            got=str(measured),
            allowed=f"{measured.least_top1:.0%} or more, error up to {measured.largest_error:g}",
        )
    return measured


def compared(found: Outputs, expected: Outputs, *, tie: float = 0.0) -> tuple[float, float, int]:
    """The share of equal answers in the first output, the relative error of all, and how many answers there are.

    An answer whose expected score is within `tie` of the best (as a share of the largest score) is as good as the best.

    >>> compared((np.array([[1.0, 2.0], [4.0, 3.0]]),), (np.array([[1.0, 2.0], [3.0, 4.0]]),))
    (0.5, 0.2581988897471611, 1)
    """
    shapes = [output.shape for output in found], [output.shape for output in expected]
    if shapes[0] != shapes[1]:
        raise Refused("the outputs have other shapes", got=shapes[0], allowed=str(shapes[1]))
    if not all(np.isfinite(output).all() for output in found):
        raise Refused("the outputs are not all finite numbers")
    difference = sum(float(np.square(a - b, dtype=np.float64).sum()) for a, b in zip(found, expected, strict=True))
    size = sum(float(np.square(output, dtype=np.float64).sum()) for output in expected)
    error = float(np.sqrt(difference / size)) if size else float(difference > 0)
    scores, wanted = found[0], expected[0]
    if scores.ndim < 2:
        return 1.0, error, 1  # no classes to choose from
    answers, best = scores.argmax(axis=1), wanted.argmax(axis=1)
    chosen = np.take_along_axis(wanted, answers[:, None], axis=1)[:, 0]
    agree = wanted.max(axis=1) - chosen <= tie * np.abs(wanted).max()
    return float(agree.mean()), error, len(np.unique(best))


def _images(deployment: Deployment, count: int) -> Array:
    """Drawn images as they cross to an engine."""
    raw = drawn_images(count, deployment.network.image_shape, seed=SEED)
    images = np.empty(raw.shape, deployment.pixels.element)
    deployment.pixels.converted(raw, images)
    return images


def _run(session: Session, images: Array) -> Outputs:
    outputs = session.outputs(session.run(session.input(images)))
    return tuple(output.copy() for output in outputs)  # the next run writes over them


def _joined(batches: Iterable[Outputs], wanted: int) -> Outputs:
    return tuple(np.concatenate(parts)[:wanted] for parts in zip(*batches, strict=True))


def _expected(opened: Opened, images: Array, wanted: int, size: int) -> tuple[Outputs, str]:
    """What the reference gives, and what it is called: slow, and the same for all engines, so it is kept as a file."""
    deployment = opened.deployment
    if deployment.network.file is None:
        against, batches = "torch eager in float32", np.split(images[:wanted], wanted // FEW)
    else:  # which may have its batch built in
        against, batches = "ONNX Runtime without optimisations", np.split(images, len(images) // size)

    def make(path: Path) -> None:
        run = _eager(deployment) if deployment.network.file is None else _unoptimised(opened)
        np.savez(path, *_joined(map(run, batches), wanted))

    path = opened.artefacts.made("expected.npz", f"{deployment.identity}|{wanted}", make)
    with np.load(path) as kept:
        return tuple(kept[name] for name in kept.files), against


def _eager(deployment: Deployment) -> Callable[[Array], Outputs]:
    import torch

    from tessera.inference.engines.torch_session import as_arrays

    def run(batch: Array) -> Outputs:
        with torch.no_grad():
            return as_arrays(deployment.reference(torch.from_numpy(batch)))

    return run


def _unoptimised(opened: Opened) -> Callable[[Array], Outputs]:
    from tessera.inference.engines.onnxruntime import unoptimised

    return unoptimised(opened.artefacts.onnx(opened.deployment))
