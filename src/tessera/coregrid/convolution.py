"""The shape of one convolution. A stick is one pixel with all its channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any

from tessera.errors import TesseraError
from tessera.geometry import Window

Pair = tuple[int, int]  # (height, width), unless stated otherwise
# Values of `shard_layout` that name no layout: search for the fastest plan that fits, or use the chip's default rule.
SEARCH_LAYOUT, AUTO_LAYOUT = "search", "auto"


def parse_pair(name: str, value: int | Sequence[int]) -> Pair:
    """Parse the window parameter `name`: one number, or (height, width)."""
    try:
        height, width = [index(number) for number in ((value, value) if isinstance(value, int) else value)]
    except (TypeError, ValueError):
        raise TesseraError(f"{name} must be a number or (height, width)", got=value) from None
    return height, width


def parse_padding(value: int | Sequence[int]) -> tuple[Pair, Pair]:
    """Parse a padding as ((top, bottom), (left, right)): one number, (height, width), or (top, bottom, left, right).

    >>> parse_padding(1), parse_padding((1, 2)), parse_padding([0, 1, 2, 3])
    (((1, 1), (1, 1)), ((1, 1), (2, 2)), ((0, 1), (2, 3)))
    """
    if isinstance(value, Sequence) and len(value) not in (2, 4):
        allowed = "(height, width) or (top, bottom, left, right)"
        raise TesseraError("padding must have two or four numbers", got=value, allowed=allowed)
    if isinstance(value, Sequence) and len(value) == 4:
        return parse_pair("padding", value[:2]), parse_pair("padding", value[2:])
    down, right = parse_pair("padding", value)
    return (down, down), (right, right)


MAX_PIXELS, MAX_CHANNELS, MAX_WINDOW = 1 << 28, 1 << 20, 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """The shape parameters of a convolution, without data. Padding is ((top, bottom), (left, right))."""

    batch: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        least = min(self.batch, self.height, self.width, self.in_channels, self.out_channels, self.groups)
        if least < 1:
            raise TesseraError("all sizes of a convolution must be positive", got=self)
        pixels, largest = self.batch * self.height * self.width, max(self.in_channels, self.out_channels)
        if (
            pixels > MAX_PIXELS
            or largest > MAX_CHANNELS
            or max(*self.kernel, *self.stride, *self.dilation) > MAX_WINDOW
        ):
            raise TesseraError(
                "the convolution is too large to plan",
                got=f"{pixels:,} pixels, {largest:,} channels, kernel {self.kernel}",
                allowed=f"up to {MAX_PIXELS:,} pixels, {MAX_CHANNELS:,} channels, windows of {MAX_WINDOW:,}",
            )
        for name, channels in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if channels % self.groups:
                got = f"{channels} {name}, {self.groups} groups"
                raise TesseraError("channels must be divisible by groups", got=got)
        try:
            self.window.compute_output_size((self.height, self.width))
        except ValueError as error:
            raise TesseraError(str(error), do="use a smaller kernel or more padding") from None

    @property
    def window(self) -> Window:
        return _build_window(self.kernel, self.stride, self.dilation, self.padding)

    @property
    def call_arguments(self) -> dict[str, Any]:
        """The keyword arguments of `conv2d` that describe this shape."""
        (top, bottom), (left, right) = self.padding
        return {
            "batch_size": self.batch,
            "input_height": self.height,
            "input_width": self.width,
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "kernel_size": self.kernel,
            "stride": self.stride,
            "padding": (top, bottom, left, right),
            "dilation": self.dilation,
            "groups": self.groups,
        }

    @property
    def output_size(self) -> Pair:
        """Height and width of the output."""
        return _compute_output_size(self.window, self.height, self.width)

    @property
    def output_sticks(self) -> int:
        """Number of output sticks."""
        height, width = self.output_size
        return self.batch * height * width

    @property
    def input_sticks(self) -> int:
        """Number of input sticks."""
        return self.batch * self.height * self.width

    @property
    def is_matmul(self) -> bool:
        """Whether the convolution is a matrix product without halo: 1x1 kernel, stride 1, no padding."""
        return self.kernel == self.stride == (1, 1) and self.padding == ((0, 0), (0, 0))

    @property
    def flops(self) -> int:
        taps = self.kernel[0] * self.kernel[1] * self.in_channels // self.groups
        return 2 * self.output_sticks * self.out_channels * taps


# Cached, because a search computes the same windows and sizes thousands of times.
@lru_cache(maxsize=1024)
def _build_window(kernel: Pair, stride: Pair, dilation: Pair, padding: tuple[Pair, Pair]) -> Window:
    return Window(kernel, stride, dilation, padding)


@lru_cache(maxsize=1024)
def _compute_output_size(window: Window, height: int, width: int) -> Pair:
    size = window.compute_output_size((height, width))
    return size[0], size[1]
