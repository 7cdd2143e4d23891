"""In a worker: one network streamed by us, offloaded by accelerate and in memory, in turns; and the memory of each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from phasing.offload_models import Stack
from phasing.turns import in_turns
from tessera.errors import BenchmarkFailed
from tessera.launch import Worker
from tessera.measure.memory import resident_growth
from tessera.phased import PhasedModel, write_weights

Forward = Callable[[], Tensor]
ALLOWED = 1e-4  # of the largest number of the output


def times(worker: Worker, stack: Stack, cold: bool, rounds: int) -> dict[str, tuple[float, ...]]:
    """Seconds of a pass of every way, after each has given what plain torch gives."""
    x, network = stack.input(), stack.network()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name, ExitStack() as opened, torch.no_grad():
        folder = Path(name)
        path = _file(folder, network)
        expected = network(x)
        ways: dict[str, Forward] = {"resident": lambda: network(x)}
        for way in ("overlapped", "disk_offload", "one file"):
            ways[way] = opened.enter_context(WAYS[way](stack, path, x, cold))
            error = (ways[way]() - expected).abs().max() / expected.abs().max()
            if not error <= ALLOWED:
                raise BenchmarkFailed(f"{way} of {stack.title} is off by {error:.1e}")
        before = {way: lambda: _forget(folder) for way in ways} if cold else None
        return in_turns(ways, rounds, before)


def peak(worker: Worker, stack: Stack, way: str, cold: bool) -> dict[str, float]:
    """By how much a process grows that opens a network and runs it three times; and what it is allowed to take."""
    x = stack.input()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        network = stack.network()
        path = _file(Path(name), network)
        with torch.no_grad():
            network(x)  # what torch itself takes when it first computes is nobody's
        del network

        def work() -> None:
            with torch.no_grad(), WAYS[way](stack, path, x, cold) as forward:
                for _ in range(3):
                    forward()

        grown = resident_growth(work)
    if grown is None:
        raise BenchmarkFailed("this kernel does not tell the peak of a process")
    return {"peak": grown, "allowed": stack.budget + _activations(stack)}


def _activations(stack: Stack) -> int:
    """Bytes of the two largest activations that are alive at once: what goes into a layer and what comes out."""
    sizes: list[int] = []
    network = stack.network()

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if not any(True for _ in module.children()):
            sizes.append(inputs[0].nbytes + output.nbytes)

    for module in network.modules():
        module.register_forward_hook(note)
    with torch.no_grad():
        network(stack.input())
    return 2 * max(sizes)  # a residual branch keeps its input meanwhile


def _file(folder: Path, network: nn.Module) -> Path:
    path = folder / "weights.safetensors"
    write_weights(path, network)
    return path


def _forget(folder: Path) -> None:
    """Drop every file of a folder from the page cache."""
    for path in (found for found in folder.rglob("*") if found.is_file()):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@contextmanager
def _overlapped(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    bare = stack.network().to("meta")
    options = {"schedule": "overlapped", "budget": stack.budget, "input_shape": stack.input_shape, "cold": cold}
    with PhasedModel(bare, path=path, **options) as model:
        yield lambda: model(x)


@contextmanager
def _disk_offload(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """As accelerate's documentation has it: every tensor in a file of its own."""
    from accelerate import disk_offload

    folder = path.parent / "offloaded"
    network = disk_offload(stack.network(), str(folder), execution_device=torch.device("cpu"))
    yield lambda: network(x)


@contextmanager
def _one_file(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """The same from the file that we read."""
    from accelerate.hooks import attach_align_device_hook
    from accelerate.utils import OffloadedWeightsLoader

    network = stack.network()
    names = [name for name in network.state_dict() if not name.endswith("num_batches_tracked")]
    index = {name: {"safetensors_file": str(path), "weight_name": name, "dtype": "float32"} for name in names}
    counters = {n: v for n, v in network.state_dict().items() if n.endswith("num_batches_tracked")}
    weights = OffloadedWeightsLoader(state_dict=counters, index=index, save_folder=str(path.parent))
    attach_align_device_hook(
        network,
        execution_device=torch.device("cpu"),
        offload=True,
        offload_buffers=False,
        weights_map=weights,
    )
    yield lambda: network(x)


WAYS = {"overlapped": _overlapped, "disk_offload": _disk_offload, "one file": _one_file}
