"""Tests of the placement of workers: within a NUMA node if possible, and evenly if cores must be shared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tessera.launch.placement import get_available_cpus, place_workers, read_numa_nodes


@st.composite
def draw_numa_nodes(draw: st.DrawFn) -> list[list[int]]:
    """Draw NUMA nodes of any size, with random core numbers."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    cpus = draw(st.permutations(range(sum(sizes))))
    return [sorted(cpus[sum(sizes[:i]) : sum(sizes[: i + 1])]) for i in range(len(sizes))]


@given(draw_numa_nodes(), st.integers(1, 12), st.integers(1, 6))
def test_every_worker_gets_its_cores(nodes: list[list[int]], workers: int, threads: int) -> None:
    cpus = {c for node in nodes for c in node}
    places = place_workers(workers, threads, cpus, nodes)
    assert len(places) == workers
    used = Counter(c for place in places for c in place)
    assert set(used) <= cpus
    assert all(len(set(p)) == len(p) == min(threads, len(cpus)) for p in places)
    if workers * threads <= len(cpus):
        assert max(used.values()) == 1, "cores are shared although there are enough"
    homes = [sum(bool(set(place) & set(node)) for node in nodes) for place in places]
    if sum(len(node) // threads for node in nodes) >= workers:
        assert set(homes) == {1}, "a worker spans nodes although it need not"


@given(st.integers(1, 8), st.integers(1, 40))
def test_too_many_workers_share_evenly(cores: int, workers: int) -> None:
    used = Counter(c for place in place_workers(workers, 1, range(cores), [range(cores)]) for c in place)
    shares = [used[c] for c in range(cores)]
    assert max(shares) - min(shares) <= 1


def test_only_allowed_cores_are_used() -> None:
    assert place_workers(2, 1, {1, 5}, [[0, 1, 2, 3], [4, 5, 6, 7]]) == ((1,), (5,))


def test_cores_outside_of_any_known_node_are_used() -> None:
    assert place_workers(2, 1, {3, 4}, []) == ((3,), (4,))


def test_numa_nodes_list_one_thread_of_each_core_first(tmp_path: Path) -> None:
    for node, cpus in {"node0": "0-3", "node1": "4-7", "node10": ""}.items():
        (tmp_path / "node" / node).mkdir(parents=True)
        (tmp_path / "node" / node / "cpulist").write_text(cpus + "\n")
    for cpu in range(8):
        topology = tmp_path / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        first = cpu - cpu % 2
        (topology / "thread_siblings_list").write_text(f"{first},{first + 1}\n")
    assert read_numa_nodes(tmp_path) == ((0, 2, 1, 3), (4, 6, 5, 7))


def test_placement_on_this_machine() -> None:
    (place,) = place_workers(1, 1, get_available_cpus(), read_numa_nodes())
    assert set(place) <= set(get_available_cpus())
