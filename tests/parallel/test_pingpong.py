"""Messages between two ranks: they arrive intact, and their times make sense."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers

PINGPONG = "tessera.transport.pingpong:pingpong"
pytestmark = [pytest.mark.timeout(100), pytest.mark.ranks]


@pytest.fixture(scope="module", params=["torchrun", "mpiexec"])
def two(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn=request.param, workers=2)) as workers:
        yield workers


def test_bytes_arrive_intact(two: Workers) -> None:
    for size in (1, random.randrange(2, 5000), 1 << 20):
        seed = random.randrange(1 << 30)
        (sent0, got0), (sent1, got1) = two.run("tests.launch.chores:swap_bytes", seed, size)
        assert (got0, got1) == (sent1, sent0)
        assert len(sent0) == size
        fresh = random.Random(seed)
        assert sent0 == [fresh.randbytes(size) for _ in range(3)][-1]


def test_times_of_every_size(two: Workers) -> None:
    sizes = [1, 4096, 1 << 26]  # the largest takes longer than a loaded machine can delay the smallest
    for found in two.run(PINGPONG, sizes, 10):
        assert [f["bytes"] for f in found] == sizes
        assert all(0 < f["least"] <= f["seconds"] for f in found)
        assert found[-1]["least"] > found[0]["least"], "64 MiB in the time of one byte"


def test_other_ranks_stand_by() -> None:
    with Workers(LaunchConfig(spawn="mpiexec", workers=3)) as workers:
        found = workers.run(PINGPONG, [64], 3)
    assert [len(f) for f in found] == [1, 1, 0]


def test_what_cannot_be_measured(two: Workers) -> None:
    with pytest.raises(TesseraError, match="a ping-pong has repeats and sends bytes"):
        two.run(PINGPONG, [0], 3)
    with Workers(LaunchConfig(workers=2)) as processes, pytest.raises(TesseraError, match="needs ranks: got"):
        processes.run(PINGPONG, [64], 3)
