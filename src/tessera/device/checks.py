"""Checks of a device: the assumptions that measurements on it rely on, each with a result and a reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tessera.device.device import ComputeDevice
from tessera.device.names import list_devices
from tessera.errors import get_first_line

LONG_SECONDS = 0.2  # duration of the work whose times are compared
MIN_CALL_SECONDS = 5e-3  # a call of long work; few calls in flight, because drivers limit their number
SIZES = (256, 512, 1024, 2048, 4096, 8192)  # of square matrices
MAX_CALLS = 64
ATTEMPTS = 3
CLOCK_TOLERANCE = 0.1  # between the times of the device and of the host
MAX_LAUNCH_SHARE = 0.5  # of the time of long work, until its calls return
MIN_HIDDEN = 0.5  # share of the shorter of copy and computation that must be hidden
COPY_BYTES = (1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
MIN_COPY_SECONDS = 0.05
MEMORY_BYTES = 8 << 20
MEMORY_SLACK_BYTES = 2 << 20  # of rounding in the allocator
# error relative to the RMS of the reference in float64
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}

CheckStatus = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCheck:
    """The result of one check, with its reason or the measured values."""

    name: str
    status: CheckStatus
    reason: str


def check_device(device: ComputeDevice) -> Iterator[DeviceCheck]:
    """Check a device; the results are yielded one after the other. An error of the device is a failed check."""
    for name, check in _CHECKS.items():
        try:
            status, reason = check(device)
        except Exception as error:
            status, reason = "fail", f"{type(error).__name__}: {get_first_line(error)}"
        yield DeviceCheck(name=name, status=status, reason=reason)


Outcome = tuple[CheckStatus, str]


def _judge(passed: bool, reason: str) -> Outcome:
    return ("pass" if passed else "fail"), reason


class LongWork:
    """Matrix products that keep a device busy for about `seconds`."""

    def __init__(self, device: ComputeDevice, seconds: float = LONG_SECONDS) -> None:
        self._device = device
        for size in SIZES:
            self._factor = torch.full((size, size), 1 / size, device=device.torch_device)
            self.submit(1)
            device.synchronize()
            taken = measure_host(device, lambda: self.submit(1))
            if taken >= MIN_CALL_SECONDS:
                break
        self.calls = max(2, min(MAX_CALLS, round(seconds / taken)))

    def submit(self, calls: int | None = None) -> torch.Tensor:
        """Submit the work and return its result, whose values are all 1 / size."""
        result = self._factor
        for _ in range(calls or self.calls):
            result = result @ self._factor
        return result


def measure_host(device: ComputeDevice, submit: Callable[[], Any]) -> float:
    """Return the seconds of the host's clock until submitted work is complete."""
    device.synchronize()
    start = time.perf_counter()
    result = submit()
    device.synchronize()
    seconds = time.perf_counter() - start
    del result
    return seconds


def check_clock(device: ComputeDevice) -> Outcome:
    """Compare the time between two marks with the host's clock, on long work."""
    work = LongWork(device)
    reasons = []
    for _ in range(ATTEMPTS):  # another process may delay the host
        device.synchronize()
        before = time.perf_counter()
        start = device.mark_time()
        result = work.submit()
        end = device.mark_time()
        device.synchronize()
        host, seconds = time.perf_counter() - before, device.compute_seconds(start, end)
        del result
        reasons.append(f"{seconds * 1e3:.1f} ms by events, {host * 1e3:.1f} ms by the host's clock")
        if abs(seconds - host) <= CLOCK_TOLERANCE * host:
            return "pass", reasons[-1]
    return "fail", "; ".join(reasons)


def check_asynchronous(device: ComputeDevice) -> Outcome:
    """Check that calls return early, so that a missing synchronisation gives times that are obviously too short."""
    if not device.asynchronous:
        return "not applicable", "calls return when their work is complete"
    work = LongWork(device)
    shares = []
    for _ in range(ATTEMPTS):
        device.synchronize()
        start = time.perf_counter()
        result = work.submit()
        returned = time.perf_counter() - start
        device.synchronize()
        complete = time.perf_counter() - start
        del result
        shares.append(returned / complete)
    share = min(shares)
    return _judge(share <= MAX_LAUNCH_SHARE, f"calls return after {share:.1%} of the time of their work")


def check_results(device: ComputeDevice) -> Outcome:
    """Compare results and gradients of common operators with the CPU in float64, for every dtype of the device."""
    errors, wrong, missing = [], [], []
    for dtype, tolerance in TOLERANCES.items():
        short = str(dtype).removeprefix("torch.")
        if not device.supports_dtype(dtype):
            missing.append(short)
            continue
        worst, name = max(_compare_operators(device, dtype))
        errors.append(f"{short} {worst:.1e}")
        if not worst <= tolerance:
            wrong.append(f"{name} in {short}: relative error {worst:.1e}, allowed {tolerance:.1e}")
    lacks = f"; without {', '.join(missing)}" if missing else ""
    return ("fail", "; ".join(wrong)) if wrong else ("pass", f"largest error: {', '.join(errors)}{lacks}")


def _compare_operators(device: ComputeDevice, dtype: torch.dtype) -> Iterator[tuple[float, str]]:
    generator = torch.Generator().manual_seed(3)
    functional = torch.nn.functional
    image, kernel = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, 8, 12, 12), (8, 8, 3, 3))
    )
    operators: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "conv2d": lambda x, w: functional.conv2d(x, w, padding=1),
        "matmul": lambda x, w: x.flatten(1) @ x.flatten(1).t() + w.sum(),
        "softmax": lambda x, w: functional.softmax(x.flatten(1), 1) * w.mean(),
        "layer_norm": lambda x, w: functional.layer_norm(x, (12, 12)) + w.mean(),
        "max_pool2d": lambda x, w: functional.max_pool2d(x, 2) * w.mean(),
    }
    for name, operator in operators.items():
        values = []
        for where, kind in ((device.torch_device, dtype), (torch.device("cpu"), torch.float64)):
            # round first: both sides compute with the same inputs
            inputs = [tensor.to(dtype).to(kind).to(where).requires_grad_() for tensor in (image, kernel)]
            output = operator(inputs[0], inputs[1])
            weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(6)).to(kind).to(where)
            gradients = torch.autograd.grad(output, inputs, weights)
            values.append([tensor.detach().cpu().double() for tensor in (output, *gradients)])
        for got, want in zip(*values, strict=True):
            scale = want.square().mean().sqrt().clamp_min(1e-6)
            yield float((got - want).abs().max() / scale), name


def check_copies(device: ComputeDevice) -> Outcome:
    """Copy random bytes to the device and back through two pinned buffers, each refilled after its mark."""
    count, length = 6, 1 << 16
    generator = torch.Generator().manual_seed(4)
    parts = [torch.randint(0, 256, (length,), dtype=torch.uint8, generator=generator) for _ in range(count)]
    buffers = [device.allocate_host((length,), torch.uint8) for _ in range(2)]
    targets = [torch.empty(length, dtype=torch.uint8, device=device.torch_device) for _ in range(count)]
    ready = device.mark_time()
    marks: list[Any] = [None, None]
    stream = device.make_stream()
    with device.use_stream(stream):
        device.delay_stream(stream, ready)
        for number, part in enumerate(parts):
            slot = number % 2
            if marks[slot] is not None:
                device.wait_for(marks[slot])
            buffers[slot].copy_(part)
            device.submit_copy(buffers[slot], targets[number])
            marks[slot] = device.mark_time(stream)
    copied = device.mark_time(stream)
    device.delay_stream(None, copied)
    results = [target ^ 255 for target in targets]
    wrong = sum(not torch.equal(result.cpu() ^ 255, part) for result, part in zip(results, parts, strict=True))
    return _judge(not wrong, f"{count - wrong} of {count} buffers arrived unchanged")


def check_overlap(device: ComputeDevice) -> Outcome:
    """Measure how much of a copy from pinned memory is hidden behind computation on another stream."""
    if not device.asynchronous:
        return "not applicable", "the CPU copies and computes in the same calls"
    stream = device.make_stream()
    for length in COPY_BYTES:
        source = device.allocate_host((length,), torch.uint8)
        target = torch.empty(length, dtype=torch.uint8, device=device.torch_device)
        device.synchronize()

        def copy(source: torch.Tensor = source, target: torch.Tensor = target) -> None:
            with device.use_stream(stream):
                device.submit_copy(source, target)

        copying = measure_host(device, copy)
        if copying >= MIN_COPY_SECONDS:
            break
    repeats = max(1, round(MIN_COPY_SECONDS / copying))
    work = LongWork(device, copying * repeats)

    def copy_all() -> None:
        for _ in range(repeats):
            copy()

    def run_both() -> torch.Tensor:
        copy_all()
        return work.submit()

    # the fastest of several attempts: other processes only add time
    copying, computing, both = (
        min(measure_host(device, submit) for _ in range(ATTEMPTS)) for submit in (copy_all, work.submit, run_both)
    )
    hidden = (copying + computing - both) / min(copying, computing)
    times = f"{copying * 1e3:.1f} ms copying, {computing * 1e3:.1f} ms computing, {both * 1e3:.1f} ms both"
    return _judge(hidden >= MIN_HIDDEN, f"{min(max(hidden, 0), 1):.0%} of the shorter one is hidden: {times}")


def check_memory(device: ComputeDevice) -> Outcome:
    """Compare the memory figures of the device with the size of a tensor that is allocated and freed."""
    device.synchronize()
    before = device.read_memory()
    if before is None:
        return "not applicable", "the device does not count its memory"
    device.reset_peak_memory()
    tensor = torch.zeros(MEMORY_BYTES, dtype=torch.uint8, device=device.torch_device)
    during = device.read_memory()
    del tensor
    device.synchronize()
    after = device.read_memory()
    assert during is not None
    assert after is not None
    figures = {
        "allocated": during.current - before.current - MEMORY_BYTES,
        "peak": after.peak - before.current - MEMORY_BYTES,
        "after freeing": after.current - before.current,
    }
    wrong = {name: excess for name, excess in figures.items() if not 0 <= excess <= MEMORY_SLACK_BYTES}
    if wrong:
        return "fail", ", ".join(f"{name}: {excess:+d} B against the expected value" for name, excess in wrong.items())
    return "pass", f"{MEMORY_BYTES >> 20} MiB are counted, in the peak too, and freed"


def check_peers(device: ComputeDevice) -> Outcome:
    """Copy between this device and another one of the same kind, and compare all bytes."""
    kind = device.torch_device.type
    others = [name for name in list_devices() if name != device.name and name.startswith(f"{kind}:")]
    if not others:
        return "not applicable", "there is no other device of this kind"
    values = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    here = values.to(device.torch_device)
    there = (here ^ 255).to(others[0])
    back = (there ^ 255).to(device.torch_device)
    return _judge(torch.equal(back.cpu(), values), f"1 MiB to {others[0]} and back")


_CHECKS: dict[str, Callable[[ComputeDevice], Outcome]] = {
    "event times agree with the host's clock": check_clock,
    "a missing synchronisation would be seen": check_asynchronous,
    "results equal the CPU's": check_results,
    "copies through pinned buffers are exact": check_copies,
    "copies and computing overlap": check_overlap,
    "memory figures add up": check_memory,
    "copies to another device are exact": check_peers,
}
