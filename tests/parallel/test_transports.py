"""Exchanges between real ranks, as between threads; and what is left of ranks that are killed: nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed
from tessera.launch import LaunchConfig, Workers
from tessera.launch.config import Spawn
from tessera.transport.choose import spawn_of
from tests.launch.leftovers import alive
from tests.parallel.errands import WAYS
from tests.transport.drawn import problems

ERRANDS = "tests.parallel.errands"
TRANSPORTS: dict[Spawn, tuple[str, ...]] = {"torchrun": ("gloo",), "mpiexec": ("shared", "mpi")}
USUAL = {("torchrun", 3), ("mpiexec", 2), ("mpiexec", 4)}  # ranks take their time to start: the others are slow tests
pytestmark = [pytest.mark.timeout(120), pytest.mark.ranks]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((spawn, size), id=f"{spawn}-{size}", marks=() if (spawn, size) in USUAL else pytest.mark.slow)
        for spawn in TRANSPORTS
        for size in (2, 3, 4, 6)
    ],
)
def ranks(request: pytest.FixtureRequest) -> Iterator[Workers]:
    spawn, size = request.param
    with Workers(LaunchConfig(spawn=spawn, workers=size)) as workers:
        yield workers


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_any_exchange_and_its_adjoint(ranks: Workers, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(problems(ranks.config.workers), min_size=5, max_size=5))
    limits = data.draw(st.sampled_from(WAYS))
    for name in TRANSPORTS[ranks.config.spawn]:
        for found in ranks.run(f"{ERRANDS}:exchange_on_rank", name, wanted, limits, time_limit=60.0):
            assert found == [name] * len(wanted)


def test_nobody_runs_ahead(ranks: Workers) -> None:
    for name in TRANSPORTS[ranks.config.spawn]:
        ranks.run(f"{ERRANDS}:run_ahead", name, time_limit=60.0)


def test_every_dtype_is_carried_and_added(ranks: Workers) -> None:
    for name in TRANSPORTS[ranks.config.spawn]:
        ranks.run(f"{ERRANDS}:carry_every_dtype", name, time_limit=60.0)
        ranks.run(f"{ERRANDS}:sum_every_dtype", name, time_limit=60.0)


def test_auto_is_the_fastest_that_the_ranks_have(ranks: Workers) -> None:
    best, other = ("gloo", "shared") if ranks.config.spawn == "torchrun" else ("shared", "gloo")
    size = ranks.config.workers
    assert ranks.run(f"{ERRANDS}:names", "auto") == [(best, rank, size) for rank in range(size)]
    for said in ranks.run(f"{ERRANDS}:names", other):
        assert f"have no such transport: got '{other}'" in said


def test_without_a_transport_the_programs_own_group_is_taken(ranks: Workers) -> None:
    if ranks.config.spawn == "torchrun":
        ranks.run(f"{ERRANDS}:over_own_group", time_limit=60.0)


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="mpiexec", workers=2)) as workers:
        yield workers


@pytest.mark.parametrize("name", TRANSPORTS["mpiexec"])
def test_an_exchange_ends_with_its_transport(two: Workers, name: str) -> None:
    said = two.run(f"{ERRANDS}:use_after_close", name, time_limit=30.0)
    assert said == ["an exchange ends with its transport: got 'a closed one'; open another, make it anew"] * 2


@pytest.mark.parametrize("name", TRANSPORTS["mpiexec"])
def test_closing_gives_everything_back(two: Workers, name: str) -> None:
    for before, after, mapped in two.run(f"{ERRANDS}:descriptors", name, 5, time_limit=30.0):
        assert (after, mapped) == (before, 0)


@pytest.mark.parametrize(("name", "size"), [("gloo", 2), pytest.param("mpi", 2, marks=pytest.mark.slow), ("shared", 3)])
def test_a_rank_killed_in_mid_exchange(name: str, size: int, own_temp: Path) -> None:
    left_before, others = orphaned_memory(), set(psutil.Process().children(recursive=True))
    with Workers(LaunchConfig(spawn=spawn_of(name), workers=size)) as workers:
        pids = [pid for *_, pid in workers.run("tests.launch.chores:times", 1)]
        workers.run(f"{ERRANDS}:names", name)  # libraries are loaded: their start does not count
        family = [child.pid for child in set(psutil.Process().children(recursive=True)) - others]
        assert set(pids) <= set(family)
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed, match=f"^rank 1 of {size} died of SIGKILL"):
            workers.run(f"{ERRANDS}:die_in_mid_exchange", name, 1)
        assert time.monotonic() - began < 10
        assert not alive(family)
    assert not list(own_temp.iterdir())
    assert orphaned_memory() <= left_before


def orphaned_memory() -> set[str]:
    """Shared memory with a name that nobody maps: what only somebody's death can leave behind."""
    mapped = ""
    for process in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped += process.read_text()
        except OSError:
            continue
    return {str(path) for path in Path("/dev/shm").iterdir() if str(path) not in mapped}
