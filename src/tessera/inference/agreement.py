"""Compare an engine's outputs with torch eager in float32 before the engine is timed.

Two values are computed on generated images (see `data.images`). The top-1 agreement is the share of images (of pixels,
if the network has an output per pixel) with equal highest-scoring class. The relative error covers all outputs. An ONNX
file has no torch module; the engine is then compared with ONNX Runtime without graph optimisations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tessera.errors import Refused
from tessera.inference.data.images import IMAGE_KINDS, Array
from tessera.inference.engines.engine import Session
from tessera.inference.opening import OpenedSession
from tessera.inference.settings import Settings

CHECK_SEED = 1_234  # seed of the images; differs from the seeds for fitting weights and for int8 calibration
FLOAT_CHECK_IMAGES = 8  # number of images for floating-point precisions, which should change no predicted class
INT8_CHECK_IMAGES = 2 * IMAGE_KINDS

Outputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAgreement:
    """The agreement of an engine's outputs with the reference named by `against`, and the required limits.

    `top1` is the share of images with equal highest-scoring class, `error` the relative error of all outputs.
    `answers` is the number of distinct classes that the reference predicts; with only 1, `top1` proves little.
    """

    images: int
    top1: float
    error: float
    answers: int
    min_top1: float
    max_error: float
    against: str

    @property
    def holds(self) -> bool:
        return self.top1 >= self.min_top1 and self.error <= self.max_error

    def __str__(self) -> str:
        return f"top-1 agreement {self.top1:.1%} on {self.images} images, relative error {self.error:.2g}"


def check_agreement(settings: Settings, opened: OpenedSession) -> OutputAgreement:
    """Compare the outputs of a session with the outputs of its reference on generated images.

    Raises:
        Refused: the outputs differ by more than the precision allows.
    """
    precision, size = opened.deployment.precision, settings.batch_size
    count = INT8_CHECK_IMAGES if precision.weights == "int8" else FLOAT_CHECK_IMAGES
    pixels, image_shape = opened.deployment.pixels, opened.deployment.network.image_shape
    images = pixels.generate_batch(-(-count // size) * size, image_shape, seed=CHECK_SEED)
    outputs = _join_batches(
        [_run_batch(opened.session, batch) for batch in np.split(images, len(images) // size)], count
    )
    expected, against = _load_expected(opened, images, count, size)
    top1, error, answers = compare_outputs(outputs, expected, tie=precision.tie)
    measured = OutputAgreement(
        images=count,
        top1=top1,
        error=error,
        answers=answers,
        min_top1=precision.min_top1,
        max_error=precision.max_error,
        against=against,
    )
    if not measured.holds:
        raise Refused(
            f"{settings.engine} in {precision.name} does not agree with {against}",
            got=str(measured),
            allowed=f"top-1 agreement {measured.min_top1:.0%} or more, relative error up to {measured.max_error:g}",
        )
    return measured


def compare_outputs(outputs: Outputs, expected: Outputs, *, tie: float = 0.0) -> tuple[float, float, int]:
    """Return the top-1 agreement, the relative error of all outputs, and the number of distinct expected classes.

    Classes come from the first output. A predicted class counts as equal if its expected score is at most `tie` times
    the largest score below the best expected score.

    >>> compare_outputs((np.array([[1.0, 2.0], [4.0, 3.0]]),), (np.array([[1.0, 2.0], [3.0, 4.0]]),))
    (0.5, 0.2581988897471611, 1)
    """
    shapes = [output.shape for output in outputs], [output.shape for output in expected]
    if shapes[0] != shapes[1]:
        raise Refused("the outputs and the reference outputs differ in shape", got=shapes[0], allowed=str(shapes[1]))
    if not all(np.isfinite(output).all() for output in outputs):
        raise Refused("the outputs contain NaN or infinite values")
    difference = sum(float(np.square(a - b, dtype=np.float64).sum()) for a, b in zip(outputs, expected, strict=True))
    size = sum(float(np.square(output, dtype=np.float64).sum()) for output in expected)
    error = float(np.sqrt(difference / size)) if size else float(difference > 0)
    scores, reference = outputs[0], expected[0]
    if scores.ndim < 2:
        return 1.0, error, 1  # the output has no class dimension
    answers, best = scores.argmax(axis=1), reference.argmax(axis=1)
    chosen = np.take_along_axis(reference, answers[:, None], axis=1)[:, 0]
    agree = reference.max(axis=1) - chosen <= tie * np.abs(reference).max()
    return float(agree.mean()), error, len(np.unique(best))


def _run_batch(session: Session, images: Array) -> Outputs:
    outputs = session.read_outputs(session.run(session.prepare_input(images)))
    return tuple(output.copy() for output in outputs)  # the next run overwrites the outputs


def _join_batches(batches: Iterable[Outputs], count: int) -> Outputs:
    return tuple(np.concatenate(parts)[:count] for parts in zip(*batches, strict=True))


def _load_expected(opened: OpenedSession, images: Array, count: int, size: int) -> tuple[Outputs, str]:
    """Return the reference outputs and the name of the reference. A file caches the outputs for all engines."""
    deployment = opened.deployment
    if deployment.network.file is None:
        against, batches = "torch eager in float32", np.split(images[:count], count // FLOAT_CHECK_IMAGES)
    else:  # an ONNX file may have a fixed batch size
        against, batches = "ONNX Runtime without optimisations", np.split(images, len(images) // size)

    def write_outputs(path: Path) -> None:
        np.savez(path, *_join_batches(map(_build_reference(opened), batches), count))

    path = opened.artefacts.make_once("expected.npz", f"{deployment.identity}|{count}", write_outputs)
    with np.load(path) as stored:
        return tuple(stored[name] for name in stored.files), against


def _build_reference(opened: OpenedSession) -> Callable[[Array], Outputs]:
    """Return a function that runs the reference of the agreement check on a batch."""
    deployment = opened.deployment
    if deployment.network.file is not None:
        from tessera.inference.engines.onnxruntime import build_unoptimised

        return build_unoptimised(opened.artefacts.export_onnx(deployment))
    import torch

    from tessera.inference.engines.pytorch import to_arrays

    def run(batch: Array) -> Outputs:
        with torch.no_grad():
            return to_arrays(deployment.float32_module(torch.from_numpy(batch)))

    return run
