"""Benchmark under a memory limit: a network whose weights are four times the limit gives the output of plain torch.

The limit is on the address space (RLIMIT_AS) beyond that of an interpreter with torch. Plain torch cannot load the
network.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.phased import MatrixChain, PhasedModel, write_weights

LAYER_SIZE, LAYERS, WEIGHTS_PER_MEMORY, ROWS = 2048, 64, 4, 64
TIME_LIMIT_SECONDS = 600.0


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    size = LAYER_SIZE // 2 if small else LAYER_SIZE
    weight_bytes = 4 * size**2 * LAYERS
    memory = weight_bytes // WEIGHTS_PER_MEMORY
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        path = Path(folder) / "chain.safetensors"
        network = MatrixChain(size, LAYERS)
        write_weights(path, network)
        expected = network(torch.ones(ROWS, size))
        outcomes = {}
        for variant, function in (("plain", "run_plain"), ("phased", "run_phased")):
            say(f"limit, {variant}")
            with Workers(LaunchConfig(workers=1, time_limit=TIME_LIMIT_SECONDS)) as workers:
                try:
                    output = workers.run(f"phased.limit:{function}", str(path), size, memory)[0]
                    same = torch.equal(output, expected)
                    outcomes[variant] = (
                        "gives the output of plain torch" if same else "WRONG: differs from the output of plain torch"
                    )
                except TesseraError as error:
                    outcomes[variant] = f"fails: {error}"
    lines = [
        f"{weight_bytes / 1e6:.0f} MB of weights, {memory / 1e6:.0f} MB of memory beyond an interpreter with torch"
    ]
    lines += [f"  {variant:8} {outcome}" for variant, outcome in outcomes.items()]
    return {"weights": weight_bytes, "room": memory, "ways": outcomes, "lines": lines}


def run_plain(worker: Worker, path: str, size: int, memory: int) -> torch.Tensor:
    """Run plain torch in a worker, with all weights in memory."""
    from safetensors.torch import load_file

    _limit_memory(memory)
    try:
        tensors = load_file(path)
        values = {name: tensor for name, tensor in tensors.items() if not name.startswith("__padding__")}
        network = MatrixChain(size, LAYERS)
        network.load_state_dict(values)
    except (MemoryError, RuntimeError, OSError) as error:
        raise BenchmarkFailed(f"not enough memory ({type(error).__name__})") from None
    return network(torch.ones(ROWS, size))


def run_phased(worker: Worker, path: str, size: int, memory: int) -> torch.Tensor:
    """Run a phased model in a worker, with a few phases in memory."""
    _limit_memory(memory)
    with torch.device("meta"):
        skeleton = MatrixChain(size, LAYERS)
    with PhasedModel(skeleton, path=path, budget=memory // 2, schedule="overlapped") as model:
        output: torch.Tensor = model(torch.ones(ROWS, size))
    return output


def _limit_memory(memory: int) -> None:
    """Limit the address space of this process to its current size plus `memory` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
