"""Choose the cores that each worker is pinned to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tessera.affinity import get_affinity

Cpus = tuple[int, ...]


def place_workers(
    workers: int, threads: int, cpus: Collection[int], nodes: Sequence[Sequence[int]]
) -> tuple[Cpus, ...]:
    """Return the cores of each worker: `threads` cores, on one NUMA node if possible.

    `cpus` are the cores that may be used; `nodes` lists the cores of each NUMA node in order of preference.
    Neighbouring ranks share a node, and nodes are loaded evenly:

    >>> place_workers(2, 2, range(8), [range(0, 4), range(4, 8)])
    ((0, 1), (4, 5))

    A worker spans two nodes only if there are enough cores for all workers, but not within single nodes:

    >>> place_workers(3, 2, range(6), [range(0, 3), range(3, 6)])
    ((0, 1), (2, 3), (4, 5))

    With more threads than cores, cores are assigned to workers cyclically; a worker never gets a core twice:

    >>> place_workers(4, 1, [0, 1], [[0, 1]])
    ((0,), (1,), (0,), (1,))
    >>> place_workers(2, 4, [0, 1], [[0, 1]])
    ((0, 1), (0, 1))
    """
    usable = [tuple(c for c in node if c in cpus) for node in nodes]
    known = {c for node in usable for c in node}
    usable.append(tuple(sorted(c for c in cpus if c not in known)))
    usable = [node for node in usable if node]
    assert usable, "a process always has a core to run on"
    cores = sum(map(len, usable))
    capacity = [len(node) // threads for node in usable]
    if sum(capacity) < workers:
        if workers * threads <= cores or threads > min(map(len, usable)):
            usable = [tuple(c for node in usable for c in node)]
        capacity = [workers] * len(usable)
    counts = [0] * len(usable)
    for _ in range(workers):
        open_nodes = [i for i in range(len(usable)) if counts[i] < capacity[i]]
        counts[min(open_nodes, key=lambda i: ((counts[i] + 1) / len(usable[i]), i))] += 1
    return tuple(
        tuple(node[(k * threads + t) % len(node)] for t in range(min(threads, len(node))))
        for node, count in zip(usable, counts, strict=True)
        for k in range(count)
    )


def get_available_cpus() -> Cpus:
    """Return the cores that this process may run on."""
    return tuple(sorted(get_affinity()))


def read_numa_nodes(sys: Path = Path("/sys/devices/system")) -> tuple[Cpus, ...]:
    """Return the cores of each NUMA node: one hardware thread of every physical core first, then the second threads."""
    lists = sorted(sys.glob("node/node[0-9]*/cpulist"), key=lambda p: int(p.parent.name.removeprefix("node")))
    nodes = [_parse_cpulist(path.read_text()) for path in lists]

    def get_sort_key(cpu: int) -> tuple[int, int]:
        siblings = sys / f"cpu/cpu{cpu}/topology/thread_siblings_list"
        return (_parse_cpulist(siblings.read_text()).index(cpu) if siblings.exists() else 0), cpu

    return tuple(tuple(sorted(node, key=get_sort_key)) for node in nodes if node)


def _parse_cpulist(text: str) -> Cpus:
    """Parse a list of cores in the kernel's format: ranges and single numbers, separated by commas.

    >>> _parse_cpulist("0-2,8\\n")
    (0, 1, 2, 8)
    """
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)
