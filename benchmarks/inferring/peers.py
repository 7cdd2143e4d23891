"""Engines as their users call them: no code of ours between the loop and the engine.

`benchmark_app` is OpenVINO's own program and tunes itself by its throughput hint; a matrix product shows what the
machine can do at the same time.
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

from tessera.inference.measures.windows import Stretch, Window
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.models import image_size_of

ONNXRUNTIME, COMPILE, EAGER, GEMM = "onnxruntime", "torch.compile", "torch eager", "matrix product"
GEMM_SIZE = 2048
BURST = 1.5  # seconds, or one batch where that takes longer
APP_SECONDS = 5
TIME_LIMIT = 900.0

_call: list[Callable[[], Any]] = []  # in a worker: one batch


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine in one placement (processes and their threads) with one batch, alive and ready for bursts."""

    place: tuple[int, int]
    batch: int
    workers: Workers

    def rate(self, seconds: float = BURST) -> float:
        """Images per second of one burst, all its processes together while all of them work."""
        stretches = self.workers.run("inferring.peers:burst", seconds)
        return Window(batch=self.batch, stretches=tuple(stretches)).rate

    def close(self) -> None:
        self.workers.__exit__(None, None, None)


def start(kind: str, network: str, file: Path, place: tuple[int, int], batch: int) -> Peer:
    """An engine in processes of its own, warm."""
    processes, threads = place
    workers = Workers(LaunchConfig(workers=processes, threads=threads, time_limit=TIME_LIMIT)).__enter__()
    workers.run("inferring.peers:prepare", kind, network, str(file), batch)
    return Peer(place, batch, workers)


def start_gemm(place: tuple[int, int]) -> Peer:
    """The matrix product on all cores; its rate is in products per second."""
    return start(GEMM, "", Path(), place, 1)


def prepare(worker: Worker, kind: str, network: str, file: str, batch: int) -> None:
    """In a worker: the engine's own call on one batch, warm."""
    import numpy as np

    if kind == GEMM:
        _call[:] = [_gemm(worker.threads)]
    else:
        size = image_size_of(network)
        images = np.random.default_rng(0).standard_normal((batch, 3, size, size), dtype=np.float32)
        makers = {ONNXRUNTIME: _onnxruntime, COMPILE: _compiled, EAGER: _eager}
        _call[:] = [makers[kind](network, file, images, worker.threads)]
    for _ in range(2):
        _call[0]()


def _onnxruntime(network: str, file: str, images: Any, threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"images": images})


def _eager(network: str, file: str, images: Any, threads: int) -> Callable[[], Any]:
    import torch

    from tessera.models import build

    torch.set_num_threads(threads)
    module, image = build(network), torch.from_numpy(images)

    def call() -> None:
        with torch.inference_mode():
            module(image)

    return call


def _compiled(network: str, file: str, images: Any, threads: int) -> Callable[[], Any]:
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


def _gemm(threads: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    a, b = torch.rand(GEMM_SIZE, GEMM_SIZE), torch.rand(GEMM_SIZE, GEMM_SIZE)
    out = torch.empty(GEMM_SIZE, GEMM_SIZE)
    return lambda: torch.mm(a, b, out=out)


def burst(worker: Worker, seconds: float) -> Stretch:
    """In a worker: batches for some time, from a barrier on."""
    begun, ended, call = [], [], _call[0]
    worker.sync.barrier()
    now = time.perf_counter_ns()
    until = now + round(seconds * 1e9)
    while now < until:
        begun.append(now)
        call()
        now = time.perf_counter_ns()
        ended.append(now)
    return Stretch(begun=tuple(begun), ended=tuple(ended))


def benchmark_app(network: str, file: Path, batch: int) -> float:
    """Images per second as OpenVINO's own program measures and tunes them, by its throughput hint."""
    size = image_size_of(network)
    program = Path(sys.executable).parent / "benchmark_app"
    words = [str(program), "-m", str(file), "-d", "CPU", "-hint", "throughput", "-t", str(APP_SECONDS)]
    words += ["-shape", f"[{batch},3,{size},{size}]", "-infer_precision", "f32"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIME_LIMIT, check=True)
    (found,) = re.findall(r"Throughput:\s+([0-9.]+) FPS", done.stdout)
    return float(found)
