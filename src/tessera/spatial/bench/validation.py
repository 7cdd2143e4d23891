"""The validation benchmark: a comparison of received pixels, output and gradients with the unsplit convolution.

Exchanges and layers are built once and used for several rounds of new random pixels, weights and gradients. Stale data
of an earlier round, swapped borders and missing borders are therefore detected.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tessera.errors import Refused
from tessera.geometry import Box
from tessera.launch.worker import Worker
from tessera.measure.environment import describe_environment
from tessera.measure.memory_limits import get_available_bytes
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record
from tessera.spatial.bench.measurement import get_dtype
from tessera.spatial.bench.reference import ReferenceResult, get_part
from tessera.spatial.bench.rounds import gather_values
from tessera.spatial.bench.steps import build_module, get_memory_format
from tessera.spatial.distribution import Distribution, Overlap, SpatialSettings
from tessera.spatial.layers.convolution import ConvNd, build_convolution
from tessera.spatial.layers.layer import TileLayer
from tessera.spatial.problem import HaloProblem
from tessera.spatial.tensor.weights import all_reduce_tensors
from tessera.transport.exchange import Exchange
from tessera.transport.transport import Transport

WORKSPACE_FACTOR = 10.0  # memory of a rank per byte of the unsplit image and output: gradients, squares, wider copies
MEMORY_SHARE = 0.5  # share of the free memory
# The allowed error relative to the scale of the result; received pixels must be bitwise equal.
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationFault:
    """A wrong result: its name, box of the image, relative error, and the round, layout and overlap mode (`when`)."""

    result: str
    box: Box | None
    error: float
    when: str

    def __str__(self) -> str:
        where = f" of {self.box!r}" if self.box is not None else ""
        return f"{self.result}{where} off by {self.error:.2g} ({self.when})"


@dataclass(slots=True, kw_only=True)
class ValidationResult:
    """The validation result of one rank: its faults, and the largest error of each kind of result."""

    rank: int
    faults: list[ValidationFault] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        if self.passed:
            return f"Validation passed for rank: {self.rank}"
        more = f", and {len(self.faults) - 1} more" if len(self.faults) > 1 else ""
        return f"Validation failed for rank: {self.rank}: {self.faults[0]}{more}"


def validate(
    problem: HaloProblem,
    transport: Transport,
    *,
    overlaps: Sequence[Overlap],
    layouts: Sequence[str],
    rounds: int,
    seed: int,
) -> ValidationResult:
    """Validate this rank's part; all ranks call it with the same arguments."""
    result = ValidationResult(rank=transport.rank)
    module = build_module(problem)
    checkers = [_ValidatedLayout(problem, transport, module, overlaps, layout) for layout in layouts]
    for number in range(rounds):
        reference = ReferenceResult.of(problem, seed + number)
        with torch.no_grad():
            module.weight.copy_(reference.weight)
            assert module.bias is not None
            module.bias.copy_(reference.bias)
        for checker in checkers:
            checker.check_pixels(reference, result, f"round {number + 1}")
            checker.check_layers(reference, result, f"round {number + 1}")
    return result


class _ValidatedLayout:
    """One rank's exchange and layers in one layout."""

    def __init__(
        self,
        problem: HaloProblem,
        transport: Transport,
        module: ConvNd,
        overlaps: Sequence[Overlap],
        layout: str,
    ) -> None:
        self._problem, self._transport, self._module, self._layout = problem, transport, module, layout
        last = layout == "channels_last"
        self._format = get_memory_format(problem, channels_last=last)
        self._plan = problem.plan()
        self._exchange = Exchange(
            transport,
            self._plan,
            channels=problem.in_channels,
            dtype=get_dtype(problem.dtype),
            channels_last=last,
        )
        distribution = Distribution.of(problem.mesh, (problem.batch, *problem.image))
        self._layers: dict[Overlap, TileLayer] = {}
        for overlap in overlaps:
            settings = SpatialSettings(transport=transport, mesh=problem.mesh, overlap=overlap, channels_last=last)
            self._layers[overlap] = build_convolution(module, distribution, settings)

    def check_pixels(self, reference: ReferenceResult, result: ValidationResult, when: str) -> None:
        """Check all pixels that the output reads: received pixels, own pixels and padding."""
        plan = self._exchange.worker_plan
        self._exchange.start(self._get_tile(reference))
        frame = self._exchange.finish()
        expected_frame = reference.get_frame(self._problem, plan.need).to(frame.dtype)
        result.errors.setdefault("pixels", 0.0)
        if torch.equal(frame, expected_frame):
            return
        boxes = [("received pixels", move.target_box & plan.need) for move in plan.receives]
        boxes += [("kept pixels", move.target_box & plan.need) for move in plan.keeps]
        views = {
            (name, box): [get_part(pixels, box.relative_to(plan.need)) for pixels in (frame, expected_frame)]
            for name, box in boxes
        }
        wrong = [key for key, (actual, expected) in views.items() if not torch.equal(actual, expected)]
        for name, box in wrong or [("padding", plan.need)]:
            actual, expected = views.get((name, box), [frame, expected_frame])
            error = float((actual.double() - expected.double()).abs().max())
            result.errors["pixels"] = max(result.errors["pixels"], error)
            result.faults.append(ValidationFault(result=name, box=box, error=error, when=f"{when}, {self._layout}"))

    def check_layers(self, reference: ReferenceResult, result: ValidationResult, when: str) -> None:
        """Check the output and the gradients in every overlap mode."""
        inputs, outputs = self._plan.inputs.get_box(result.rank), self._plan.outputs.get_box(result.rank)
        weight, bias = self._module.weight, self._module.bias
        assert bias is not None
        for overlap, layer in self._layers.items():
            tile = self._get_tile(reference).requires_grad_()
            self._module.zero_grad(set_to_none=True)
            output = layer(tile)
            torch.autograd.backward(output, get_part(reference.output_gradient, outputs).to(output.dtype))
            gradients = [weight.grad, bias.grad]
            weight_gradient, bias_gradient = all_reduce_tensors(gradients, [weight, bias], self._transport.all_reduce)
            scales = reference.scales
            compared: list[tuple[str, Tensor | None, Tensor, Box | None, float]] = [
                ("output", output.detach(), reference.output, outputs, scales.output),
                ("input gradient", tile.grad, reference.image_gradient, inputs, scales.image_gradient),
                ("weight gradient", weight_gradient, reference.weight_gradient, None, scales.weight_gradient),
                ("bias gradient", bias_gradient, reference.bias_gradient, None, scales.bias_gradient),
            ]
            for name, value, whole, box, scale in compared:
                error = _compute_relative_error(value, whole if box is None else get_part(whole, box), scale)
                result.errors[name] = max(result.errors.get(name, 0.0), error)
                if not error <= TOLERANCE[self._problem.dtype]:
                    place = f"{when}, {self._layout}, overlap {overlap}"
                    result.faults.append(ValidationFault(result=name, box=box, error=error, when=place))

    def _get_tile(self, reference: ReferenceResult) -> Tensor:
        pixels = get_part(reference.image, self._exchange.worker_plan.owned)
        return pixels.to(get_dtype(self._problem.dtype)).clone(memory_format=self._format)


def _compute_relative_error(actual: Tensor | None, expected: Tensor, scale: float) -> float:
    """Return the largest difference relative to the scale of the result."""
    if actual is None or actual.shape != expected.shape:
        return float("inf") if expected.numel() else 0.0
    if not expected.numel():
        return 0.0
    return float((actual.double() - expected.double()).abs().max()) / max(scale, 1e-30)


def run_validation(worker: Worker, case: Case, problem: HaloProblem, transport: Transport) -> Record:
    """Validate on all ranks; the record is `failed` if any rank has a fault."""
    _refuse_too_large(worker, problem)
    layout = str(case.params["layout"])
    result = validate(
        problem,
        transport,
        overlaps=case.params["overlap"],
        layouts=("contiguous", "channels_last") if layout == "auto" else (layout,),
        rounds=int(case.params["rounds"]),
        seed=worker.sync.agree(random.randrange(1 << 40)),
    )
    return build_validation_record(case, gather_values(worker, result), transport.name)


def build_validation_record(case: Case, results: Sequence[ValidationResult], transport: str) -> Record:
    """Combine the results of all ranks into one record."""
    wrong = [str(result) for result in results if not result.passed]
    names = dict.fromkeys(name for result in results for name in result.errors)
    errors = {name: max(result.errors.get(name, 0.0) for result in results) for name in names}
    return Record(
        case=case,
        status="failed" if wrong else "ok",
        reason="; ".join(wrong),
        metrics=make_metrics(
            {
                **{f"error_{name.replace(' ', '_')}": value for name, value in errors.items()},
                "tolerance": TOLERANCE[str(case.params["dtype"])],
                "failed_ranks": len(wrong),
            }
        ),
        environment=describe_environment(),
        verdict="failed" if wrong else "passed",
        chosen={"transport": transport},
        details={"rank_verdicts": [{"rank": v.rank, "passed": v.passed, "text": str(v)} for v in results]},
    )


def _refuse_too_large(worker: Worker, problem: HaloProblem) -> None:
    needed = WORKSPACE_FACTOR * problem.footprint * worker.size
    if worker.sync.agree(needed > MEMORY_SHARE * get_available_bytes()):
        raise Refused(
            f"the unsplit reference, which every rank computes, needs {needed / 2**30:.1f} GiB",
            do="validate a smaller image",
        )
