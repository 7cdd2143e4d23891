"""In a worker: one network streamed by us, offloaded by accelerate and in memory, in turns; and the memory of each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from phasing.offload_models import Stack
from phasing.turns import in_turns
from tessera.errors import BenchmarkFailed
from tessera.launch import Worker
from tessera.measure.memory import resident_growth
from tessera.models.weights import read_weights
from tessera.phased import PhasedModel, write_weights

Forward = Callable[[], Tensor]
CPU = torch.device("cpu")
PASSES = 3  # of which the peak is taken
ALLOWED = 1e-4  # of the largest number of the output


def times(worker: Worker, stack: Stack, cold: bool, rounds: int) -> dict[str, tuple[float, ...]]:
    """Seconds of a pass of every way, after each has given what plain torch gives."""
    x, network = stack.input(), stack.network()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name, ExitStack() as opened, torch.no_grad():
        folder = Path(name)
        path = _file(folder, network)
        expected = network(x)
        ways: dict[str, Forward] = {"resident": lambda: network(x)}
        for way in (way for way in WAYS if not (cold and way == "mapped")):  # what is mapped is in the page cache
            ways[way] = opened.enter_context(WAYS[way](stack, path, x, cold))
            error = (ways[way]() - expected).abs().max() / expected.abs().max()
            if not error <= ALLOWED:
                raise BenchmarkFailed(f"{way} of {stack.title} is off by {error:.1e}")
        before = {way: lambda: _forget(folder) for way in ways} if cold else None
        return in_turns(ways, rounds, before)


def peak(worker: Worker, stack: Stack, way: str, cold: bool) -> dict[str, float]:
    """By how much a process grows that opens a network and runs it three times; and what it is allowed to take.

    That is its budget and its activations: by how much plain torch grows in as many passes with all weights in memory.
    """
    x = stack.input()
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        network = stack.network()
        path = _file(Path(name), network)
        with torch.no_grad():
            network(x)  # what libraries take when they are first used is nobody's
            activations = resident_growth(partial(_passes, partial(network, x)))
        del network
        _offloaded(stack, path)

        def work(stack: Stack = stack, path: Path = path, x: Tensor = x) -> None:
            with torch.no_grad(), WAYS[way](stack, path, x, cold) as forward:
                _passes(forward)

        tiny = Stack(title="tiny", rows=1, size=8, layers=4)
        (Path(name) / "tiny").mkdir()
        small = _file(Path(name) / "tiny", tiny.network())
        _offloaded(tiny, small)
        work(tiny, small, tiny.input())
        grown = resident_growth(work)
    if grown is None or activations is None:
        raise BenchmarkFailed("this kernel does not tell the peak of a process")
    return {"peak": grown, "budget": stack.budget, "activations": activations}


def _passes(forward: Forward) -> None:
    for _ in range(PASSES):
        forward()


def _file(folder: Path, network: nn.Module) -> Path:
    path = folder / "weights.safetensors"
    write_weights(path, network)
    return path


def _offloaded(stack: Stack, path: Path) -> Path:
    """The folder that accelerate keeps weights in; it writes it once."""
    from accelerate.utils import offload_state_dict

    folder = path.parent / "offloaded"
    if not folder.is_dir():
        offload_state_dict(str(folder), stack.network().state_dict())
    return folder


def _with_buffers(stack: Stack, path: Path) -> nn.Module:
    """The network without its weights, but with its buffers, which accelerate leaves in memory."""
    network = stack.bare()
    stored = read_weights(path)
    for name, _ in list(network.named_buffers()):
        owner, _, own = name.rpartition(".")
        value = stored[name].clone() if name in stored else torch.zeros((), dtype=torch.long)
        network.get_submodule(owner).register_buffer(own, value)
    return network


def _forget(folder: Path) -> None:
    """Drop every file of a folder from the page cache."""
    for path in (found for found in folder.rglob("*") if found.is_file()):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@contextmanager
def _overlapped(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    options = {"schedule": "overlapped", "budget": stack.budget, "input_shape": stack.input_shape, "cold": cold}
    with PhasedModel(stack.bare(), path=path, **options) as model:
        yield lambda: model(x)


@contextmanager
def _mapped(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """The same, computed from where the weights lie in the page cache."""
    options = {"schedule": "overlapped", "budget": stack.budget, "input_shape": stack.input_shape, "store": "mapped"}
    with PhasedModel(stack.bare(), path=path, **options) as model:
        yield lambda: model(x)


@contextmanager
def _disk_offload(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """As accelerate's documentation has it: every tensor in a file of its own."""
    from accelerate import disk_offload

    network = disk_offload(_with_buffers(stack, path), str(_offloaded(stack, path)), execution_device=CPU)
    yield lambda: network(x)


@contextmanager
def _one_file(stack: Stack, path: Path, x: Tensor, cold: bool) -> Iterator[Forward]:
    """The same from the file that we read."""
    from accelerate.hooks import attach_align_device_hook
    from accelerate.utils import OffloadedWeightsLoader

    network = _with_buffers(stack, path)
    names = [name for name, _ in network.named_parameters()]
    index = {name: {"safetensors_file": str(path), "weight_name": name, "dtype": "float32"} for name in names}
    weights = OffloadedWeightsLoader(index=index, save_folder=str(path.parent))
    attach_align_device_hook(network, execution_device=CPU, offload=True, weights_map=weights)
    yield lambda: network(x)


WAYS = {"overlapped": _overlapped, "mapped": _mapped, "disk_offload": _disk_offload, "one file": _one_file}
