"""Memory without a name: seen by who has its address, refused to who finds something else there, gone when let go."""

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
from tessera.transport.memory import Memory, mapped

SIZE = 1 << 20
READ_AND_ANSWER = """
import pickle, sys, torch
from tessera.transport.memory import mapped
numbers = torch.frombuffer(mapped(pickle.loads(bytes.fromhex(sys.argv[1]))), dtype=torch.int64)
numbers[1] = 2 * numbers[0]
"""


def test_another_process_sees_and_writes_it() -> None:
    memory = Memory(SIZE)
    numbers = memory.tensor(4096, 2, torch.int64)
    assert numbers.data_ptr() == memory.start + 4096
    memory.tensor(0, 2, torch.int64)[0] = 21
    program = [sys.executable, "-c", READ_AND_ANSWER, pickle.dumps(memory.address).hex()]
    subprocess.run(program, check=True, timeout=60)
    assert memory.tensor(0, 2, torch.int64).tolist() == [21, 42]
    memory.close()


def test_the_memory_of_somebody_else_is_refused() -> None:
    memory, other = Memory(SIZE), Memory(SIZE)
    with pytest.raises(TesseraError, match="cannot map its neighbour's memory: got 'it belongs to another process'"):
        mapped(replace(memory.address, path=other.address.path))
    for one in (memory, other):
        one.close()
        with pytest.raises(TesseraError, match=r"No such file or directory.*use --transport mpi"):
            mapped(one.address)


def test_it_lives_as_long_as_its_tensors() -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:tessera")

    before = held()
    memory = Memory(SIZE)
    numbers = memory.tensor(0, 4, torch.float32)
    memory.close()
    del memory
    assert numbers.fill_(3).sum() == 12
    assert held() == (before[0] + 1, before[1] + 1), "mmap keeps a descriptor of its own"
    del numbers
    assert held() == before
