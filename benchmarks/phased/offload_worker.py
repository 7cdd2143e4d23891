"""Worker of the comparison with accelerate: interleaved times of all variants, and the peak memory of each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from phased.interleaved import time_interleaved
from phased.offload_models import Stack
from tessera.errors import BenchmarkFailed
from tessera.launch import Worker
from tessera.measure.memory import measure_resident_growth
from tessera.models.weights import read_weights
from tessera.phased import PhasedModel, write_weights

Forward = Callable[[], Tensor]
CPU = torch.device("cpu")
MEMORY_PASSES = 3  # passes in the measurement of peak memory
TOLERANCE = 1e-4  # relative to the largest output value


def time_variants(worker: Worker, stack: Stack, cold: bool, rounds: int) -> dict[str, tuple[float, ...]]:
    """Return the seconds of a pass of every variant, after comparing its output with plain torch."""
    x, network = stack.draw_input(), stack.build_network()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as directory, ExitStack() as resources, torch.no_grad():
        folder = Path(directory)
        path = _write_file(folder, network)
        expected = network(x)
        variants: dict[str, Forward] = {"resident": lambda: network(x)}
        for name in (
            name for name in VARIANTS if not (cold and name == "mapped")
        ):  # mapped files are always in the page cache
            variants[name] = resources.enter_context(VARIANTS[name](stack, path, x, cold))
            error = (variants[name]() - expected).abs().max() / expected.abs().max()
            if not error <= TOLERANCE:
                raise BenchmarkFailed(f"the output of {name} for {stack.title} differs from plain torch by {error:.1e}")
        before = {name: lambda: drop_cache(folder) for name in variants} if cold else None
        return time_interleaved(variants, rounds, before)


def measure_peak(worker: Worker, stack: Stack, variant: str, cold: bool) -> dict[str, float]:
    """Return the memory growth of a process that opens a network and runs passes, the budget, and the activations.

    The activations are measured as the memory growth of plain torch over the same passes with all weights in memory.
    """
    x = stack.draw_input()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        network = stack.build_network()
        path = _write_file(Path(name), network)
        with torch.no_grad():
            network(x)  # warm-up: one-time allocations of libraries are not measured
            activations = measure_resident_growth(partial(_run_passes, partial(network, x)))
        del network
        _write_offloaded(stack, path)

        def run_variant(stack: Stack = stack, path: Path = path, x: Tensor = x) -> None:
            with torch.no_grad(), VARIANTS[variant](stack, path, x, cold) as forward:
                _run_passes(forward)

        tiny = Stack(title="tiny", rows=1, size=8, layers=4)
        (Path(name) / "tiny").mkdir()
        small = _write_file(Path(name) / "tiny", tiny.build_network())
        _write_offloaded(tiny, small)
        run_variant(tiny, small, tiny.draw_input())
        grown = measure_resident_growth(run_variant)
    if grown is None or activations is None:
        raise BenchmarkFailed("this kernel does not report the peak memory of a process")
    return {"peak": grown, "budget": stack.budget, "activations": activations}


def _run_passes(forward: Forward) -> None:
    for _ in range(MEMORY_PASSES):
        forward()


def _write_file(folder: Path, network: nn.Module) -> Path:
    path = folder / "weights.safetensors"
    write_weights(path, network)
    return path


def _write_offloaded(stack: Stack, path: Path) -> Path:
    """Write the weights in accelerate's format unless they exist, and return their folder."""
    from accelerate.utils import offload_state_dict

    folder = path.parent / "offloaded"
    if not folder.is_dir():
        offload_state_dict(str(folder), stack.build_network().state_dict())
    return folder


def _build_with_buffers(stack: Stack, path: Path) -> nn.Module:
    """Build the network with weights on the meta device and buffers in memory, as accelerate requires."""
    network = stack.build_skeleton()
    stored = read_weights(path)
    for name, _ in list(network.named_buffers()):
        owner, _, own = name.rpartition(".")
        value = stored[name].clone() if name in stored else torch.zeros((), dtype=torch.long)
        network.get_submodule(owner).register_buffer(own, value)
    return network


def drop_cache(folder: Path) -> None:
    """Drop every file of a folder from the page cache."""
    for path in (entry for entry in folder.rglob("*") if entry.is_file()):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@contextmanager
def open_overlapped(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """Open the network as a phased model that reads its weights from the file (schedule `overlapped`)."""
    options = {"schedule": "overlapped", "budget": stack.budget, "input_shape": stack.input_shape, "cold": cold}
    with PhasedModel(stack.build_skeleton(), path=path, **options) as model:
        yield lambda: model(x)


@contextmanager
def open_mapped(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """Open the network as a phased model that uses its weights directly from the page cache."""
    options = {"schedule": "overlapped", "budget": stack.budget, "input_shape": stack.input_shape, "store": "mapped"}
    with PhasedModel(stack.build_skeleton(), path=path, **options) as model:
        yield lambda: model(x)


@contextmanager
def open_disk_offload(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """Open the network with accelerate's `disk_offload` as documented: every tensor in a separate file."""
    from accelerate import disk_offload

    network = disk_offload(_build_with_buffers(stack, path), str(_write_offloaded(stack, path)), execution_device=CPU)
    yield lambda: network(x)


@contextmanager
def open_one_file(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """Open the network with accelerate, reading the safetensors file that the phased model reads."""
    from accelerate.hooks import attach_align_device_hook
    from accelerate.utils import OffloadedWeightsLoader

    network = _build_with_buffers(stack, path)
    names = [name for name, _ in network.named_parameters()]
    index = {name: {"safetensors_file": str(path), "weight_name": name, "dtype": "float32"} for name in names}
    weights = OffloadedWeightsLoader(index=index, save_folder=str(path.parent))
    attach_align_device_hook(network, execution_device=CPU, offload=True, weights_map=weights)
    yield lambda: network(x)


VARIANTS = {
    "overlapped": open_overlapped,
    "mapped": open_mapped,
    "disk_offload": open_disk_offload,
    "one file": open_one_file,
}
