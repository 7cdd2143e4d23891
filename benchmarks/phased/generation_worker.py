"""Worker of the comparison of repeated passes: one engine in a process, which runs turns of passes on request.

    python generation_worker.py write SUBJECT small|full FOLDER
    python generation_worker.py run SUBJECT small|full FOLDER ENGINE warm|cold BUDGET

Prints one JSON object for the opened engine, and one for every line that it reads: seconds of every pass, results of
all passes so far, and the peak memory of the process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from phased.generation_subjects import CHECKPOINT, OFFLOADED, Subject, list_subjects, write_subject
from phased.offload_worker import drop_cache
from tessera.measure.memory import read_process_memory, reset_peak_memory, trim_allocator
from tessera.phased import PhasedModel
from tessera.phased.paging.checkpoints import create_parameters_on_meta

THREADS = 2


def open_phased(subject: Subject, folder: Path, cold: bool, budget: int) -> nn.Module:
    """Open the checkpoint as a phased model: cold past the page cache, warm mapped from it."""
    options: dict[str, Any] = {"cold": True} if cold else {"store": "mapped"}
    build = _make_builder(subject)
    return PhasedModel.from_pretrained(folder / CHECKPOINT, model=build, budget=budget, threads=THREADS, **options)


def open_disk_offload(subject: Subject, folder: Path, cold: bool, budget: int) -> nn.Module:
    """Open the network with accelerate's `disk_offload`: every tensor in a file of its own."""
    from accelerate import disk_offload

    return disk_offload(_build_empty(subject), str(folder / OFFLOADED), execution_device=torch.device("cpu"))


def open_cpu_offload(subject: Subject, folder: Path, cold: bool, budget: int) -> nn.Module:
    """Open the network with accelerate's `cpu_offload`: all weights in memory."""
    from accelerate import cpu_offload
    from safetensors.torch import load_file

    network = _build_empty(subject)
    stored = {name: value.clone() for name, value in load_file(folder / CHECKPOINT).items()}
    missing = network.load_state_dict(stored, strict=False, assign=True).missing_keys
    if callable(tie := getattr(network, "tie_weights", None)):
        tie()
    empty = [name for name, value in network.named_parameters() if value.is_meta]
    if empty:
        raise RuntimeError(f"weights without values: {empty}, of {missing}")
    return cpu_offload(network, execution_device=torch.device("cpu"))


ENGINES: dict[str, Callable[[Subject, Path, bool, int], nn.Module]] = {
    "phased": open_phased,
    "disk_offload": open_disk_offload,
    "cpu_offload": open_cpu_offload,
}


def main() -> None:
    mode, name, size, place = sys.argv[1:5]
    subject, folder = list_subjects(size == "small")[name], Path(place)
    torch.set_num_threads(THREADS)
    if mode == "write":
        print(json.dumps({"bytes": write_subject(subject, folder)}), flush=True)
        return
    engine, cold, budget = sys.argv[5], sys.argv[6] == "cold", int(sys.argv[7])
    with torch.no_grad():
        network = ENGINES[engine](subject, folder, cold, budget)
        gc.collect()
        trim_allocator()
        reset_peak_memory()
        state = subject.state(network)
        print(json.dumps({"opened": True}), flush=True)
        for _ in sys.stdin:
            seconds = []
            for _ in range(subject.turn):
                if cold:
                    drop_cache(folder)
                start = time.perf_counter()
                state.advance(network)
                seconds.append(time.perf_counter() - start)
            memory = read_process_memory()
            print(json.dumps({"seconds": seconds, "results": state.results, "peak": memory.peak}), flush=True)
    os._exit(0)  # nothing to save; the libraries' own cleanup may take seconds


def _make_builder(subject: Subject) -> Callable[[], nn.Module]:
    return lambda: subject.build().to(subject.dtype)


def _build_empty(subject: Subject) -> nn.Module:
    """Build the network with parameters on the meta device, and buffers in memory."""
    with create_parameters_on_meta():
        network = subject.build().to(subject.dtype)
    if callable(tie := getattr(network, "tie_weights", None)):
        tie()
    return network.eval()


if __name__ == "__main__":
    main()
