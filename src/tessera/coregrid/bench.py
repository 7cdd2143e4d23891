"""One convolution case: planned, executed on this host under the model of the chip, and held against torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tessera.coregrid.cost.timeline import predicted
from tessera.coregrid.device.device import Device, open_device
from tessera.coregrid.device.tensors import Tensor, deallocate, from_torch, to_device, to_torch
from tessera.coregrid.execution.activations import ACTIVATIONS
from tessera.coregrid.execution.program import Program
from tessera.coregrid.formats import float32, rounded
from tessera.coregrid.machines import machine_of
from tessera.coregrid.networks.layers import network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.operations.conv2d import conv2d
from tessera.coregrid.planning.knobs import advice
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.problem import Problem
from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Metric, Record

VERSION = "1"
SEED = 7
# What agrees: float32 to rounding; shorter formats by the correlation that the chip's own tests ask for.
TOLERANCE = 1e-4
LEAST_PCC = {"float32": 0.999999, "bfloat16": 0.99, "bfloat8_b": 0.98, "bfloat4_b": 0.9}


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one case on this worker."""
    if case.name == "network":
        return _network(case, sampling)
    problem = Problem.of(case.params)
    plan = problem.plan()
    if not plan.fits:
        raise Refused(advice(plan))
    device = open_device(problem.setup.machine)
    try:
        return _measured(worker, case, sampling, Call(device, plan, problem))
    finally:
        device.close()


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The pair of numbers that says how near an output is to torch's."""

    pcc: float
    max_error: float
    relative: float


class Call:
    """A convolution that can be called again and again, its input put back where the plan wants it each time."""

    def __init__(self, device: Device, plan: ConvPlan, problem: Problem) -> None:
        self.device, self.plan, self.problem = device, plan, problem
        conv, config = plan.conv, plan.config
        draw = torch.Generator().manual_seed(SEED)
        self.images = torch.randn(conv.batch, conv.in_channels, conv.height, conv.width, generator=draw)
        fan = conv.in_channels // conv.groups * conv.kernel[0] * conv.kernel[1]
        shape = conv.out_channels, conv.in_channels // conv.groups, *conv.kernel
        self.weights = torch.randn(shape, generator=draw) / fan**0.5
        self.bias = torch.randn(conv.out_channels, generator=draw) if plan.bias else None
        self._host = from_torch(
            self.images.permute(0, 2, 3, 1).contiguous(), plan.input_dtype, layout=plan.input_layout
        )
        self._weights: Tensor = from_torch(
            self.weights, config.weights_dtype if not config.weights_dtype.is_block else float32
        )
        self._bias = None if self.bias is None else from_torch(self.bias.reshape(1, 1, 1, -1), float32)
        self._where = None if plan.slices else Program.of(plan).input
        self._input: Tensor | None = None
        self._keep_prepared()

    def _keep_prepared(self) -> None:
        """Lay the weights out once; later calls take them as they are."""
        self.before()
        output, kept = self._conv(keep=True)
        self._weights, self._bias = kept
        deallocate(output)

    def before(self) -> None:
        """Put the input where the plan wants it, unless it is there."""
        if self._input is None or not self._input.is_allocated():
            self._input = to_device(self._host, self.device, self._where)

    def __call__(self) -> None:
        deallocate(self._conv())

    def output(self) -> torch.Tensor:
        """The output as torch's, `(N, C, H, W)`."""
        conv = self.plan.conv
        self.before()
        made = self._conv()
        found = to_torch(made).float().reshape(conv.batch, *conv.output, -1)[..., : conv.out_channels]
        deallocate(made)
        return found.permute(0, 3, 1, 2)

    def truth(self) -> torch.Tensor:
        """Torch's output for the numbers that the formats hold."""
        conv, config = self.plan.conv, self.plan.config
        (top, bottom), (left, right) = conv.padding
        images = rounded(self.images.permute(0, 2, 3, 1), self.plan.input_dtype).permute(0, 3, 1, 2)
        padded = functional.pad(images, (left, right, top, bottom))
        bias = None if self.bias is None else self.bias
        found = functional.conv2d(padded, self.weights, bias, conv.stride, 0, conv.dilation, conv.groups)
        return ACTIVATIONS[config.activation](found) if config.activation else found

    def counted(self) -> tuple[Ledger, int]:
        """What one call moves, and the most that it has allocated of every core's memory, its input included."""
        if self._input is not None:
            deallocate(self._input)
        floor = self.device.arena.used
        self.before()
        self.device.arena.reset_peak()
        earlier = self.device.ledger
        self()
        return _less(self.device.ledger, earlier), self.device.arena.peak - floor

    def _conv(self, *, keep: bool = False) -> Any:
        conv, setup = self.plan.conv, self.problem.setup
        assert self._input is not None
        (top, bottom), (left, right) = conv.padding
        return conv2d(
            input_tensor=self._input,
            weight_tensor=self._weights,
            in_channels=conv.in_channels,
            out_channels=conv.out_channels,
            device=self.device,
            bias_tensor=self._bias,
            kernel_size=conv.kernel,
            stride=conv.stride,
            padding=(top, bottom, left, right),
            dilation=conv.dilation,
            batch_size=conv.batch,
            input_height=conv.height,
            input_width=conv.width,
            conv_config=self.plan.config,
            compute_config=setup.compute,
            groups=conv.groups,
            slice_config=self.problem.slices,
            return_weights_and_bias=keep,
        )


def _measured(worker: Worker, case: Case, sampling: Sampling, call: Call) -> Record:
    plan = call.plan
    numbers = _compared(call.output(), call.truth())
    moved, peak = call.counted()
    samples = sample(call, sampling, sync=worker.sync, before=call.before)
    good = numbers.pcc >= LEAST_PCC[plan.output_dtype.name]
    if plan.output_dtype is float32 and plan.weights_dtype is float32:
        good = good and numbers.relative <= TOLERANCE
    metrics = time_metrics(samples) | {
        "pcc": Metric(numbers.pcc, "", "higher"),
        "max_error": Metric(numbers.max_error, "", "lower"),
        "wrong": Metric(float(not good), "", "lower"),
        "gflops": Metric(plan.conv.flops / time_metrics(samples)["time"].value / 1e9, "GFLOP/s", "higher"),
        "high_water": Metric(peak, "B", "lower"),
        **_bytes(moved),
    }
    when = predicted(plan)
    expected = {
        "chip_time": Metric(when.seconds, "s", "lower"),
        "high_water": Metric(plan.high_water, "B", "lower"),
        **_bytes(plan.ledger),
    }
    conditions = {
        "layout": str(plan.layout),
        "cores": plan.sharding.cores,
        "slices": len(plan.slices),
        "bound": when.bound,
    }
    return Record(
        case=case,
        version=VERSION,
        launches=(samples,),
        metrics=metrics,
        predicted=expected,
        environment=environment(),
        conditions=conditions,
        notes=() if good else ("the output is not torch's",),
    )


def _bytes(ledger: Ledger) -> dict[str, Metric]:
    return {
        "moved": Metric(ledger.total, "B", "lower"),
        "local": Metric(ledger.local, "B", "lower"),
        "remote": Metric(ledger.remote, "B", "lower"),
        "multicast": Metric(ledger.multicast, "B", "lower"),
        "global": Metric(ledger.global_bytes, "B", "lower"),
    }


def _less(after: Ledger, before: Ledger) -> Ledger:
    return Ledger(
        local=after.local - before.local,
        remote=after.remote - before.remote,
        multicast=after.multicast - before.multicast,
        global_read=after.global_read - before.global_read,
        global_written=after.global_written - before.global_written,
    )


def _compared(found: torch.Tensor, truth: torch.Tensor) -> _Numbers:
    """The correlation of two outputs, the largest difference, and that as a fraction of the largest value."""
    worst = float((found - truth).abs().max())
    pair = torch.stack([found.flatten(), truth.flatten()]).double()
    constant = bool((pair.std(dim=1) == 0).any())
    pcc = float(worst == 0) if constant else float(torch.corrcoef(pair)[0, 1])
    return _Numbers(pcc=pcc, max_error=worst, relative=worst / max(float(truth.abs().max()), 1e-30))


def _network(case: Case, sampling: Sampling) -> Record:
    """A whole network planned: how long planning takes here, and what it predicts for the chip."""
    machine = machine_of(str(case.params["machine"]))
    described = network(str(case.params["network"]), int(case.params["batch_size"]))
    planning: Callable[[], object] = lambda: plan_network(described, machine)  # noqa: E731
    found = plan_network(described, machine)
    samples = sample(planning, sampling)
    plan, known = found.best, found.best.published
    metrics = time_metrics(samples)
    if known is not None:
        metrics["images_per_second"] = Metric(known.compared, "images/s", "higher")
    return Record(
        case=case,
        version=VERSION,
        launches=(samples,),
        metrics=metrics,
        predicted={
            "images_per_second": Metric(plan.images_per_second, "images/s", "higher"),
            "chip_time": Metric(plan.seconds, "s", "lower"),
            "resharding": Metric(plan.resharding, "s", "lower"),
            **({"greedy": Metric(found.greedy.seconds, "s", "lower")} if found.greedy else {}),
        },
        environment=environment(),
        notes=() if known is None else (f"{known.compared:,.0f} images/s is what was published, not measured here",),
    )
