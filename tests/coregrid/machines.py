"""A small machine for tests, with few cores so that a case takes milliseconds."""

from __future__ import annotations

from tessera.geometry import Mesh
from tessera.machine.machine import Link, Machine


def make_small_machine(rows: int = 3, cols: int = 4, memory: int = 1 << 20) -> Machine:
    """Return a machine of `rows` x `cols` cores with `memory` bytes each."""
    return Machine(
        name="small",
        title="a small grid",
        worker="core",
        workers=Mesh(rows, cols),
        local_memory=memory,
        global_memory=1 << 28,
        flops={"bfloat16": (1e12,), "float32": (1e12,), "bfloat8_b": (1e12,)},
        links={name: Link(bandwidth=(1e9,)) for name in ("local", "link", "global")},
    )
