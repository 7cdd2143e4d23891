"""Tests of exchanges between real ranks: correct values on every transport, and no leaks after a rank is killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed
from tessera.launch import LaunchConfig, Workers
from tessera.launch.config import SpawnMethod
from tessera.transport.registry import get_spawn
from tests.launch.process_checks import end_within, find_running
from tests.parallel.rank_functions import LIMITS
from tests.transport.strategies import problems

FUNCTIONS = "tests.parallel.rank_functions"
TRANSPORTS: dict[SpawnMethod, tuple[str, ...]] = {"torchrun": ("shm", "gloo"), "mpiexec": ("shared", "mpi")}
FAST_TO_START = {("torchrun", 3), ("mpiexec", 2), ("mpiexec", 4)}  # other launches are marked slow
pytestmark = [pytest.mark.timeout(120), pytest.mark.ranks]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (spawn, size), id=f"{spawn}-{size}", marks=() if (spawn, size) in FAST_TO_START else pytest.mark.slow
        )
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
def test_random_exchanges_and_their_adjoints_are_exact(ranks: Workers, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(problems(ranks.config.workers), min_size=5, max_size=5))
    limits = data.draw(st.sampled_from(LIMITS))
    for name in TRANSPORTS[ranks.config.spawn]:
        for names in ranks.run(f"{FUNCTIONS}:exchange_on_rank", name, drawn, limits, time_limit=60.0):
            assert names == [name] * len(drawn)


def test_no_rank_runs_ahead(ranks: Workers) -> None:
    for name in TRANSPORTS[ranks.config.spawn]:
        ranks.run(f"{FUNCTIONS}:run_ahead", name, time_limit=60.0)


def test_every_dtype_is_carried_and_added(ranks: Workers) -> None:
    for name in TRANSPORTS[ranks.config.spawn]:
        ranks.run(f"{FUNCTIONS}:exchange_every_dtype", name, time_limit=60.0)
        ranks.run(f"{FUNCTIONS}:sum_every_dtype", name, time_limit=60.0)


def test_auto_is_the_fastest_transport_of_the_ranks(ranks: Workers) -> None:
    best, unsupported = ("shm", "shared") if ranks.config.spawn == "torchrun" else ("shared", "gloo")
    size = ranks.config.workers
    assert ranks.run(f"{FUNCTIONS}:describe_transport", "auto") == [(best, rank, size) for rank in range(size)]
    for message in ranks.run(f"{FUNCTIONS}:describe_transport", unsupported):
        assert f"the transport is not supported by ranks of {ranks.config.spawn}: got '{unsupported}'" in message


def test_without_a_transport_the_process_group_of_the_program_is_used(ranks: Workers) -> None:
    if ranks.config.spawn == "torchrun":
        ranks.run(f"{FUNCTIONS}:exchange_over_own_group", time_limit=60.0)


@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_ranks_on_several_hosts_mix_shared_memory_and_messages(ranks: Workers, data: st.DataObject) -> None:
    size = ranks.config.workers
    if size < 3:
        return
    hosts = data.draw(st.sampled_from([[0] + [1] * (size - 1), [rank % 2 for rank in range(size)]]))
    drawn = data.draw(st.lists(problems(size), min_size=3, max_size=3))
    names = ranks.run(f"{FUNCTIONS}:exchange_between_hosts", hosts, drawn, time_limit=60.0)
    assert names == [{"torchrun": "shm+gloo", "mpiexec": "shared+mpi"}[ranks.config.spawn]] * size


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="mpiexec", workers=2)) as workers:
        yield workers


@pytest.mark.parametrize("name", TRANSPORTS["mpiexec"])
def test_an_exchange_ends_with_its_transport(two_ranks: Workers, name: str) -> None:
    messages = two_ranks.run(f"{FUNCTIONS}:use_after_close", name, time_limit=30.0)
    assert messages == ["the transport of this exchange is closed: open a transport and make a new exchange"] * 2


@pytest.mark.parametrize("name", TRANSPORTS["mpiexec"])
def test_closing_releases_all_resources(two_ranks: Workers, name: str) -> None:
    for before, after, mapped in two_ranks.run(f"{FUNCTIONS}:count_descriptors", name, 5, time_limit=30.0):
        assert (after, mapped) == (before, 0)


@pytest.mark.parametrize(
    ("name", "size"), [("gloo", 2), ("shm", 3), pytest.param("mpi", 2, marks=pytest.mark.slow), ("shared", 3)]
)
def test_a_rank_killed_during_an_exchange_is_an_error(name: str, size: int, own_temp: Path) -> None:
    orphaned_before, existing = find_orphaned_memory(), set(psutil.Process().children(recursive=True))
    with Workers(LaunchConfig(spawn=get_spawn(name), workers=size)) as workers:
        pids = [pid for *_, pid in workers.run("tests.launch.worker_functions:multiply_rank", 1)]
        workers.run(f"{FUNCTIONS}:describe_transport", name)  # load the libraries before the time is measured
        family = [child.pid for child in set(psutil.Process().children(recursive=True)) - existing]
        assert set(pids) <= set(family)
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed, match=f"^rank 1 of {size} died of SIGKILL"):
            workers.run(f"{FUNCTIONS}:die_during_exchange", name, 1)
        assert time.monotonic() - began < 10
        assert not find_running(family)
    assert not list(own_temp.iterdir())
    assert find_orphaned_memory() <= orphaned_before
    assert not find_mapping(family)


def test_an_error_or_an_interrupt_during_an_exchange_leaves_no_memory(own_temp: Path) -> None:
    before = find_orphaned_memory()
    with Workers(LaunchConfig(spawn="torchrun", workers=2)) as workers:
        pids = [pid for *_, pid in workers.run("tests.launch.worker_functions:multiply_rank", 1)]
        with pytest.raises(BenchmarkFailed, match="in the middle of a round"):
            workers.run(f"{FUNCTIONS}:fail_during_exchange", "shm", 1)
    assert not find_running(pids)
    assert not find_mapping(pids)
    command = [sys.executable, "-m", "tessera", "halo", "exchange", "--transport", "shm", "--num-spatial-parts", "2"]
    options = ["--slice-method", "1x2", "--image-size", "512", "--iterations", "1000000", "--time-limit", "100s"]
    store = ["--store", str(own_temp / "results.sqlite")]
    program = subprocess.Popen([*command, *options, *store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    family: list[int] = []
    deadline = time.monotonic() + 60
    while len(find_mapping(family)) < 2:
        assert time.monotonic() < deadline
        assert program.poll() is None
        time.sleep(0.1)
        family = [child.pid for child in psutil.Process(program.pid).children(recursive=True)]
    program.send_signal(signal.SIGINT)
    assert program.wait(30) != 0
    assert end_within(family, 10)
    assert not find_mapping(family)
    assert find_orphaned_memory() <= before


def find_mapping(pids: Iterable[int]) -> list[int]:
    """Return those of the given processes that map shared memory of the transports."""
    mapping = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if "memfd:tessera" in Path(f"/proc/{pid}/maps").read_text():
                mapping.append(pid)
    return mapping


def find_orphaned_memory() -> set[str]:
    """Return named shared memory that no process maps, which only a killed process can leave behind."""
    mapped = ""
    for process in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped += process.read_text()
        except OSError:
            continue
    return {str(path) for path in Path("/dev/shm").iterdir() if str(path) not in mapped}
