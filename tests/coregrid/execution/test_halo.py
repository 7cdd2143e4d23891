"""Tests of the haloed shards in the memories of the cores, compared with padding and gathering in torch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tessera.coregrid.execution.program import HaloMoves
from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.planning.halo import PaddedSticks
from tessera.geometry import Window
from tests.coregrid.planning.test_halo import split_evenly, windows


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(3, 9)),
    windows,
    st.integers(1, 7),
    st.sampled_from(["span", "exact"]),
    st.sampled_from([0.0, -torch.inf]),
)
def test_haloed_shards_equal_padded_images(
    sizes: tuple[int, int, int], window: Window, cores: int, mode: str, padding: float
) -> None:
    try:
        sticks = PaddedSticks(sizes, window)
    except ValueError:
        assume(False)
    inputs, outputs = split_evenly(int(np.prod(sizes)), cores), split_evenly(sticks.outputs, cores)
    halo_runs = sticks.build_halo_runs(inputs, outputs, mode)
    images = torch.randn(*sizes, 4)
    (top, bottom), (left, right) = window.padding
    padded = F.pad(images, (0, 0, left, right, top, bottom), value=padding).reshape(-1, 4)
    shards = [images.reshape(-1, 4)[run.slice] for run in inputs]
    haloed = [torch.full((size, 4), torch.nan) for size in halo_runs.sizes]
    moved = HaloMoves.of(halo_runs).exchange(shards.__getitem__, haloed.__getitem__, padding, CallRecorder(keep=False))
    for run, span, shard in zip(outputs, halo_runs.ranges, haloed, strict=True):
        first = sticks.corners[run.slice]
        kept = np.arange(span.start, span.stop) if mode == "span" else np.unique(first[:, None] + sticks.taps)
        assert torch.equal(shard, padded[torch.from_numpy(kept)])
    own, remote = (
        sum(length for runs in moves for _, _, length in runs) for moves in (halo_runs.local, halo_runs.remote.values())
    )
    assert (moved.local, moved.remote) == (own * 16, remote * 16)
