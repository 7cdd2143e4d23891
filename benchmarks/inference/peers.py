"""The peers: engines called directly, without code of Tessera.

`benchmark_app` is OpenVINO's own program, which tunes itself with its throughput hint. A matrix product that is
interleaved with the engines gives the peak rate of the machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.inference.replicas.windows import BatchTimes, ThroughputWindow
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.models import get_image_size

ONNXRUNTIME, COMPILE, EAGER, GEMM = "onnxruntime", "torch.compile", "torch eager", "matrix product"
GEMM_SIZE = 2048
BURST_SECONDS = 1.5  # seconds of a burst, or one batch if a batch takes longer
BENCHMARK_APP_SECONDS = 5
TIME_LIMIT_SECONDS = 900.0

_engine_call: list[Callable[[], Any]] = []  # in a worker: a function that computes one batch


@dataclass(frozen=True, slots=True)
class Peer:
    """A running engine in one placement (processes, threads per process) with one batch size."""

    place: tuple[int, int]
    batch: int
    workers: Workers

    def measure_rate(self, seconds: float = BURST_SECONDS) -> float:
        """Return the total images per second in one burst, over the time in which all processes compute."""
        times = self.workers.run("inference.peers:run_burst", seconds)
        return ThroughputWindow(batch=self.batch, replicas=tuple(times)).rate

    def close(self) -> None:
        self.workers.__exit__(None, None, None)


def start_peer(kind: str, network: str, file: Path, place: tuple[int, int], batch: int) -> Peer:
    """Start an engine in its own processes and warm it up."""
    processes, threads = place
    workers = Workers(LaunchConfig(workers=processes, threads=threads, time_limit=TIME_LIMIT_SECONDS)).__enter__()
    workers.run("inference.peers:prepare_engine", kind, network, str(file), batch)
    return Peer(place, batch, workers)


def start_gemm(place: tuple[int, int]) -> Peer:
    """Start a matrix product on all cores as a peer; its rate is in products per second."""
    return start_peer(GEMM, "", Path(), place, 1)


def prepare_engine(worker: Worker, kind: str, network: str, file: str, batch: int) -> None:
    """Build and warm up the engine call for one batch; runs in a worker."""
    import numpy as np

    if kind == GEMM:
        _engine_call[:] = [_build_gemm(worker.threads)]
    else:
        size = get_image_size(network)
        images = np.random.default_rng(0).standard_normal((batch, 3, size, size), dtype=np.float32)
        builders = {ONNXRUNTIME: _build_onnxruntime, COMPILE: _build_compiled, EAGER: _build_eager}
        _engine_call[:] = [builders[kind](network, file, images, worker.threads)]
    for _ in range(2):
        _engine_call[0]()


def _build_onnxruntime(network: str, file: str, images: Any, threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"images": images})


def _build_eager(network: str, file: str, images: Any, threads: int) -> Callable[[], Any]:
    import torch

    from tessera.models import build

    torch.set_num_threads(threads)
    module, image = build(network), torch.from_numpy(images)

    def call() -> None:
        with torch.inference_mode():
            module(image)

    return call


def _build_compiled(network: str, file: str, images: Any, threads: int) -> Callable[[], Any]:
    import torch
    import torch._inductor.config

    from tessera.models import build

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    module = build(network).to(memory_format=torch.channels_last)
    image = torch.from_numpy(images).contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(module)

    def call() -> None:
        with torch.no_grad():
            compiled(image)

    return call


def _build_gemm(threads: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    a, b = torch.rand(GEMM_SIZE, GEMM_SIZE), torch.rand(GEMM_SIZE, GEMM_SIZE)
    out = torch.empty(GEMM_SIZE, GEMM_SIZE)
    return lambda: torch.mm(a, b, out=out)


def run_burst(worker: Worker, seconds: float) -> BatchTimes:
    """Compute batches for `seconds` seconds after a barrier; runs in a worker."""
    starts, ends, call = [], [], _engine_call[0]
    worker.sync.barrier()
    now = time.perf_counter_ns()
    until = now + round(seconds * 1e9)
    while now < until:
        starts.append(now)
        call()
        now = time.perf_counter_ns()
        ends.append(now)
    return BatchTimes(starts=tuple(starts), ends=tuple(ends))


def run_benchmark_app(network: str, file: Path, batch: int) -> float:
    """Return the images per second that OpenVINO's benchmark_app measures with its throughput hint."""
    size = get_image_size(network)
    program = Path(sys.executable).parent / "benchmark_app"
    command = [str(program), "-m", str(file), "-d", "CPU", "-hint", "throughput", "-t", str(BENCHMARK_APP_SECONDS)]
    command += ["-shape", f"[{batch},3,{size},{size}]", "-infer_precision", "f32"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=True)
    (rate,) = re.findall(r"Throughput:\s+([0-9.]+) FPS", completed.stdout)
    return float(rate)
