"""A network of four times the memory that its process may take: it runs, and its output is that of plain torch.

The limit is on the address space (RLIMIT_AS) beyond what an interpreter with torch has; plain torch does not even load.
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

SIZE, LAYERS, TIMES, ROWS = 2048, 64, 4, 64
TIME_LIMIT = 600.0


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    size = SIZE // 2 if small else SIZE
    everything = 4 * size**2 * LAYERS
    room = everything // TIMES
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        path = Path(folder) / "chain.safetensors"
        network = MatrixChain(size, LAYERS)
        write_weights(path, network)
        expected = network(torch.ones(ROWS, size))
        ways = {}
        for way in ("plain", "phased"):
            say(f"limit, {way}")
            with Workers(LaunchConfig(workers=1, time_limit=TIME_LIMIT)) as workers:
                try:
                    found = workers.run(f"phasing.limit:{way}", str(path), size, room)[0]
                    same = torch.equal(found, expected)
                    ways[way] = "gives the output of plain torch" if same else "gives another output: WRONG"
                except TesseraError as error:
                    ways[way] = f"fails: {error}"
    lines = [f"{everything / 1e6:.0f} MB of weights, {room / 1e6:.0f} MB more than an interpreter with torch has"]
    lines += [f"  {way:8} {said}" for way, said in ways.items()]
    return {"weights": everything, "room": room, "ways": ways, "lines": lines}


def plain(worker: Worker, path: str, size: int, room: int) -> torch.Tensor:
    """In a worker: all weights in memory."""
    from safetensors.torch import load_file

    _limit(room)
    try:
        found = load_file(path)
        values = {name: found[name] for name in found if not name.startswith("__padding__")}
        network = MatrixChain(size, LAYERS)
        network.load_state_dict(values)
    except (MemoryError, RuntimeError, OSError) as error:
        raise BenchmarkFailed(f"no memory ({type(error).__name__})") from None
    return network(torch.ones(ROWS, size))


def phased(worker: Worker, path: str, size: int, room: int) -> torch.Tensor:
    """In a worker: a few phases at a time."""
    _limit(room)
    with torch.device("meta"):
        bare = MatrixChain(size, LAYERS)
    with PhasedModel(bare, path=path, budget=room // 2, schedule="overlapped") as model:
        output: torch.Tensor = model(torch.ones(ROWS, size))
    return output


def _limit(room: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
