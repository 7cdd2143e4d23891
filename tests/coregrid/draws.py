"""Hypothesis strategy for small random convolutions."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from tessera.coregrid.convolution import Convolution
from tessera.errors import TesseraError


@st.composite
def convolutions(draw: st.DrawFn, most: int = 12, channels: int = 6, whole: int = 1) -> Convolution:
    """Draw a convolution of images with up to `most` pixels per side and up to `channels * whole` channels."""
    side, pad = st.integers(1, most), st.integers(0, 2)
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    per_group = st.integers(1, max(1, channels * whole // groups))
    try:
        return Convolution(
            batch=draw(st.integers(1, 3)),
            height=draw(side),
            width=draw(side),
            in_channels=draw(per_group) * groups,
            out_channels=draw(per_group) * groups,
            kernel=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
            stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
            padding=((draw(pad), draw(pad)), (draw(pad), draw(pad))),
            dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
            groups=groups,
        )
    except TesseraError:
        assume(False)
        raise AssertionError from None
