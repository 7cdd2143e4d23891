"""Convolution shapes that several test modules use."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from tessera.coregrid.convolution import Convolution
from tessera.errors import TesseraError


def square(batch: int, size: int, in_channels: int, out_channels: int, kernel: int = 3, stride: int = 1) -> Convolution:
    """Return a convolution of square images; for odd kernels and stride 1, the padding keeps the image size."""
    pad = kernel // 2
    return Convolution(
        batch=batch,
        height=size,
        width=size,
        in_channels=in_channels,
        out_channels=out_channels,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=((pad, pad), (pad, pad)),
    )


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    """Draw a random convolution with asymmetric padding, strides and dilation."""
    small = st.integers(1, 3)
    pads = st.tuples(st.integers(0, 3), st.integers(0, 3))
    try:
        return Convolution(
            batch=draw(small),
            height=draw(st.integers(1, 24)),
            width=draw(st.integers(1, 24)),
            in_channels=draw(st.integers(1, 100)),
            out_channels=draw(st.integers(1, 100)),
            kernel=(draw(small), draw(small)),
            stride=(draw(small), draw(small)),
            padding=(draw(pads), draw(pads)),
            dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        )
    except TesseraError:
        assume(False)
        raise
