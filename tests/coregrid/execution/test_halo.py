"""Haloed shards made in the cores' memories: padding and gathering, by other means."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.execution.halo import HaloMoves
from tessera.coregrid.planning.sticks import Sticks
from tessera.geometry import Window
from tests.coregrid.planning.test_sticks import dealt, windows


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(3, 9)),
    windows,
    st.integers(1, 7),
    st.sampled_from(["span", "exact"]),
    st.sampled_from([0.0, -torch.inf]),
)
def test_equals_padding_and_gathering(
    sizes: tuple[int, int, int], window: Window, cores: int, mode: str, padding: float
) -> None:
    try:
        sticks = Sticks(sizes, window)
    except ValueError:
        assume(False)
    inputs, outputs = dealt(int(np.prod(sizes)), cores), dealt(sticks.outputs, cores)
    haloing = sticks.haloing(inputs, outputs, mode)
    images = torch.randn(*sizes, 4)
    (top, bottom), (left, right) = window.padding
    padded = F.pad(images, (0, 0, left, right, top, bottom), value=padding).reshape(-1, 4)
    shards = [images.reshape(-1, 4)[run.slice] for run in inputs]
    haloed = [torch.full((size, 4), torch.nan) for size in haloing.sizes]
    moved = HaloMoves.of(haloing).run(shards.__getitem__, haloed.__getitem__, padding, Calls(keep=False))
    for run, span, shard in zip(outputs, haloing.ranges, haloed, strict=True):
        first = sticks.trace[run.slice]
        kept = np.arange(span.start, span.stop) if mode == "span" else np.unique(first[:, None] + sticks.taps)
        assert torch.equal(shard, padded[torch.from_numpy(kept)])
    own, others = haloing.moved()
    assert (moved.local, moved.remote) == (own * 16, others * 16)
