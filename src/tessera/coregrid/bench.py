"""Measure one core grid case: plan it, execute it on this host in the chip model, and compare the output with torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from tessera.coregrid.activations import compute_activation
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.device.device import Device, open_device
from tessera.coregrid.device.tensors import Tensor, deallocate, from_torch, to_device, to_torch
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.formats import float32, round_values
from tessera.coregrid.networks.plan import make_network_configs, plan_network, plan_network_case
from tessera.coregrid.operations.conv2d import conv2d
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import ConvPlan, explain_fit
from tessera.coregrid.problem import ConvProblem
from tessera.errors import Refused
from tessera.launch.worker import RunContext, Worker
from tessera.measure.environment import describe_environment
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.results.metrics import Metric, make_metrics, make_time_metrics
from tessera.results.record import Case, Record

RECORD_VERSION = "1"
INPUT_SEED = 7
# Required agreement with torch: float32 up to rounding errors; other formats by the correlation of ttnn's own tests.
MAX_RELATIVE_ERROR = 1e-4
MIN_CORRELATION = {"float32": 0.999999, "bfloat16": 0.99, "bfloat8_b": 0.98, "bfloat4_b": 0.9}


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Measure one convolution or network case in this process and return its record."""
    if case.name == "network":
        return _measure_network(case, sampling)
    problem = ConvProblem.of(case.params)
    plan = problem.plan()
    if not plan.fits:
        raise Refused(explain_fit(plan))
    device = open_device(problem.setup.machine)
    try:
        return _measure_call(context.worker, case, sampling, ConvCall(device, plan, problem))
    finally:
        device.close()


class ConvCall:
    """A convolution that can be called repeatedly, with prepared weights and its input on the device."""

    def __init__(self, device: Device, plan: ConvPlan, problem: ConvProblem) -> None:
        self.device, self.plan, self.problem = device, plan, problem
        conv, config = plan.conv, plan.config
        generator = torch.Generator().manual_seed(INPUT_SEED)
        self.images = torch.randn(conv.batch, conv.in_channels, conv.height, conv.width, generator=generator)
        fan = conv.in_channels // conv.groups * conv.kernel[0] * conv.kernel[1]
        shape = conv.out_channels, conv.in_channels // conv.groups, *conv.kernel
        self.weights = torch.randn(shape, generator=generator) / fan**0.5
        self.bias = torch.randn(conv.out_channels, generator=generator) if plan.setup.bias else None
        pixels = self.images.permute(0, 2, 3, 1).contiguous()
        self._host = from_torch(pixels, plan.input_dtype, layout=plan.setup.input_layout)
        weights_dtype = float32 if config.weights_dtype.is_block else config.weights_dtype
        self._weights: Tensor = from_torch(self.weights, weights_dtype)
        self._bias = None if self.bias is None else from_torch(self.bias.reshape(1, 1, 1, -1), float32)
        self._where = None if plan.slices else ConvProgram.of(plan).input
        self._input: Tensor | None = None
        self._shape = conv.call_arguments
        self._prepare_weights()

    def _prepare_weights(self) -> None:
        """Prepare the weights and bias for the device by one call of `conv2d`. Later calls reuse them."""
        self.prepare_input()
        output, prepared = self._call_conv2d(keep=True)
        self._weights, self._bias = prepared
        deallocate(output)

    def prepare_input(self) -> None:
        """Copy the input to the device in the layout of the plan, unless the input is already on the device."""
        if self._input is None or not self._input.is_allocated():
            self._input = to_device(self._host, self.device, self._where)

    def __call__(self) -> None:
        deallocate(self._call_conv2d())

    def compute_output(self) -> torch.Tensor:
        """Run the convolution and return its output as float32 `(N, C, H, W)`."""
        conv = self.plan.conv
        self.prepare_input()
        output = self._call_conv2d()
        values = to_torch(output).float().reshape(conv.batch, *conv.output_size, -1)[..., : conv.out_channels]
        deallocate(output)
        return values.permute(0, 3, 1, 2)

    def compute_reference(self) -> torch.Tensor:
        """Return torch's output for the input rounded to the plan's input format, with weights and bias in float32."""
        conv, config = self.plan.conv, self.plan.config
        (top, bottom), (left, right) = conv.padding
        images = round_values(self.images.permute(0, 2, 3, 1), self.plan.input_dtype).permute(0, 3, 1, 2)
        padded = functional.pad(images, (left, right, top, bottom))
        output = functional.conv2d(padded, self.weights, self.bias, conv.stride, 0, conv.dilation, conv.groups)
        return compute_activation(output, config.activation)

    def count_bytes_and_peak_memory(self) -> tuple[Ledger, int]:
        """Return the bytes that one call moves, and the peak memory per core in bytes, including the input."""
        if self._input is not None:
            deallocate(self._input)
        used_before = self.device.arena.used
        self.prepare_input()
        self.device.arena.reset_peak()
        earlier = self.device.ledger
        self()
        return self.device.ledger - earlier, self.device.arena.peak - used_before

    def _call_conv2d(self, *, keep: bool = False) -> Any:
        assert self._input is not None
        return conv2d(
            input_tensor=self._input,
            weight_tensor=self._weights,
            bias_tensor=self._bias,
            device=self.device,
            conv_config=self.plan.config,
            compute_config=self.problem.setup.compute,
            slice_config=self.problem.slices,
            return_weights_and_bias=keep,
            **self._shape,
        )


def _measure_call(worker: Worker, case: Case, sampling: Sampling, call: ConvCall) -> Record:
    plan = call.plan
    pcc, max_error, relative_error = _compare_outputs(call.compute_output(), call.compute_reference())
    ledger, peak = call.count_bytes_and_peak_memory()
    samples = sample(call, sampling, sync=worker.sync, before=call.prepare_input)
    good = pcc >= MIN_CORRELATION[plan.config.dtype.name]
    if plan.config.dtype is float32 and plan.config.weights_dtype is float32:
        good = good and relative_error <= MAX_RELATIVE_ERROR
    times = make_time_metrics(samples)
    figures = {
        "pcc": pcc,
        "max_error": max_error,
        "wrong": float(not good),
        "gflops": plan.conv.flops / times["time"].value / 1e9,
        "high_water": peak,
    }
    when = predict_time(plan)
    expected = make_metrics({"chip_time": when.seconds, "high_water": plan.high_water})
    return Record(
        case=case,
        version=RECORD_VERSION,
        launches=(samples,),
        metrics=times | make_metrics(figures) | _build_byte_metrics(ledger),
        predicted=expected | _build_byte_metrics(plan.ledger),
        environment=describe_environment(),
        chosen={"layout": str(plan.layout), "cores": plan.sharding.cores, "slices": len(plan.slices)},
        details={"bound": when.bound},
        notes=() if good else ("the output does not agree with torch",),
    )


def _build_byte_metrics(ledger: Ledger) -> dict[str, Metric]:
    moved = {"moved": ledger.total, "local": ledger.local, "remote": ledger.remote, "multicast": ledger.multicast}
    return make_metrics({**moved, "global": ledger.global_bytes})


def _compare_outputs(output: torch.Tensor, truth: torch.Tensor) -> tuple[float, float, float]:
    """Return the correlation of `output` with `truth`, the largest error, and this error over the largest value."""
    worst = float((output - truth).abs().max())
    pair = torch.stack([output.flatten(), truth.flatten()]).double()
    constant = bool((pair.std(dim=1) == 0).any())
    pcc = float(worst == 0) if constant else float(torch.corrcoef(pair)[0, 1])
    return pcc, worst, worst / max(float(truth.abs().max()), 1e-30)


def _measure_network(case: Case, sampling: Sampling) -> Record:
    """Measure the time to plan a whole network, and record the network's predicted throughput."""
    search = plan_network_case(case.params)
    configs = make_network_configs(case.params)
    samples = sample(lambda: plan_network(search.best.network, search.best.machine, *configs), sampling)
    plan, published = search.best, search.best.published
    predicted = {
        "images_per_second": plan.kernel_images_per_second if published else plan.images_per_second,
        "chip_time": plan.seconds,
        "resharding": plan.moving,
    }
    if search.greedy:
        predicted["greedy"] = search.greedy.seconds
    metrics, notes = make_time_metrics(samples), tuple[str, ...]()
    if published is not None:
        metrics |= make_metrics({"images_per_second": published.rate})
        notes = (f"{published.rate:,.0f} images/s is the published rate, not measured here",)
    return Record(
        case=case,
        version=RECORD_VERSION,
        launches=(samples,),
        metrics=metrics,
        predicted=make_metrics(predicted),
        environment=describe_environment(),
        notes=notes,
    )
