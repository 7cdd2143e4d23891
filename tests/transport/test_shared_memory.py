"""Tests of shared memory: mapped by address, refused if another process owns it, freed after the last mapping."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tessera.errors import TesseraError
from tessera.transport.shared_memory import SharedMemory, map_shared_memory

SIZE = 1 << 20
READ_AND_ANSWER = """
import pickle, sys, torch
from tessera.transport.shared_memory import map_shared_memory
numbers = torch.frombuffer(map_shared_memory(pickle.loads(bytes.fromhex(sys.argv[1]))), dtype=torch.int64)
numbers[1] = 2 * numbers[0]
"""


def test_another_process_reads_and_writes_it() -> None:
    memory = SharedMemory(SIZE)
    numbers = memory.view_tensor(4096, 2, torch.int64)
    assert numbers.data_ptr() == memory.start + 4096
    memory.view_tensor(0, 2, torch.int64)[0] = 21
    program = [sys.executable, "-c", READ_AND_ANSWER, pickle.dumps(memory.address).hex()]
    subprocess.run(program, check=True, timeout=60)
    assert memory.view_tensor(0, 2, torch.int64).tolist() == [21, 42]
    memory.close()


def test_memory_of_another_process_is_refused() -> None:
    memory, second = SharedMemory(SIZE), SharedMemory(SIZE)
    with pytest.raises(TesseraError, match="cannot map the memory of its neighbour: got 'it belongs"):
        map_shared_memory(replace(memory.address, path=second.address.path))
    for segment in (memory, second):
        segment.close()
        with pytest.raises(TesseraError, match=r"No such file or directory.*use --transport mpi or gloo"):
            map_shared_memory(segment.address)


def test_memory_lives_as_long_as_its_tensors() -> None:
    def count_resources() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:tessera")

    before = count_resources()
    memory = SharedMemory(SIZE)
    numbers = memory.view_tensor(0, 4, torch.float32)
    memory.close()
    del memory
    assert numbers.fill_(3).sum() == 12
    assert count_resources() == (before[0] + 1, before[1] + 1), "mmap keeps a descriptor of its own"
    del numbers
    assert count_resources() == before
