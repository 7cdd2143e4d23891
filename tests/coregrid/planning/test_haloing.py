"""Counting the sticks of haloed shards gives what going through them gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.haloing import HaloCount, halo_count, haloing_of
from tessera.coregrid.planning.sharding import ShardLayout, sharding_of
from tessera.coregrid.planning.sticks import Haloing
from tessera.geometry import Mesh
from tests.coregrid.planning.shapes import convolutions, square


def gone_through(found: Haloing) -> HaloCount:
    cores = range(len(found.sizes))
    links = {link: sum(length for _, _, length in runs) for link, runs in found.remote.items()}
    return HaloCount(
        sizes=found.sizes,
        copied=tuple(sum(length for _, _, length in runs) for runs in found.local),
        received=tuple(sum(n for (_, to), n in links.items() if to == core) for core in cores),
        pushed=tuple(sum(n for (source, _), n in links.items() if source == core) for core in cores),
    )


@settings(max_examples=300, deadline=None)
@given(convolutions(), st.integers(1, 40), st.booleans(), st.sampled_from(["span", "exact"]))
def test_counts_are_those_of_the_runs(conv: Convolution, cores: int, whole: bool, mode: str) -> None:
    sharding = sharding_of(conv, ShardLayout.HEIGHT, Mesh(1, cores), whole_grid=whole)
    found = halo_count(conv, sharding, mode)
    runs = haloing_of(conv, sharding, mode)
    assert found == gone_through(runs)
    assert found.largest == runs.largest
    assert found.pads == sum(length for pads in runs.pads for _, length in pads)


def test_eight_lines_of_an_image_read_ten() -> None:
    conv = square(8, 56, 64, 64)
    sharding = sharding_of(conv, ShardLayout.HEIGHT, Mesh(7, 8), whole_grid=True)
    found = halo_count(conv, sharding)
    assert set(found.sizes) == {10 * 58}
    assert found.received[1] == 2 * 56  # a line from above, one from below
    assert found.received[0] == found.received[6] == 56  # the first and the last of an image
