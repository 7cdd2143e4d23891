"""Tests of ping-pong between two ranks: messages arrive intact, and the measured times are plausible."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers

PINGPONG = "tessera.transport.pingpong:measure_pingpong"
pytestmark = [pytest.mark.timeout(100), pytest.mark.ranks]


@pytest.fixture(scope="module", params=["torchrun", "mpiexec"])
def two_ranks(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn=request.param, workers=2)) as workers:
        yield workers


def test_bytes_arrive_intact(two_ranks: Workers) -> None:
    for size in (1, random.randrange(2, 5000), 1 << 20):
        seed = random.randrange(1 << 30)
        (sent0, got0), (sent1, got1) = two_ranks.run("tests.launch.worker_functions:swap_bytes", seed, size)
        assert (got0, got1) == (sent1, sent0)
        assert len(sent0) == size
        fresh = random.Random(seed)
        assert sent0 == [fresh.randbytes(size) for _ in range(3)][-1]


def test_every_size_has_times(two_ranks: Workers) -> None:
    sizes = [1, 4096, 1 << 26]  # the largest message takes longer than the smallest, also on a busy machine
    for timings in two_ranks.run(PINGPONG, sizes, 10):
        assert [timing["bytes"] for timing in timings] == sizes
        assert all(0 < timing["least"] <= timing["seconds"] for timing in timings)
        assert timings[-1]["least"] > timings[0]["least"], "64 MiB in the time of one byte"


def test_other_ranks_have_no_timings() -> None:
    with Workers(LaunchConfig(spawn="mpiexec", workers=3)) as workers:
        timings = workers.run(PINGPONG, [64], 3)
    assert [len(timing) for timing in timings] == [1, 1, 0]


def test_invalid_ping_pongs_are_refused(two_ranks: Workers) -> None:
    with pytest.raises(TesseraError, match="the numbers of repeats and bytes must be positive"):
        two_ranks.run(PINGPONG, [0], 3)
    with (
        Workers(LaunchConfig(workers=2)) as processes,
        pytest.raises(TesseraError, match="a ping-pong requires connected ranks: got"),
    ):
        processes.run(PINGPONG, [64], 3)
