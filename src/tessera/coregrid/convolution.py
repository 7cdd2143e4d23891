"""The shape of one convolution on images in rows of sticks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tessera.errors import TesseraError
from tessera.geometry import Window

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Everything about a convolution but its numbers; padding is (top, bottom), (left, right)."""

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
            raise TesseraError("a convolution has images and channels", got=self, allowed="1 or more of everything")
        for what, channels in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if channels % self.groups:
                got = f"{channels} {what}, {self.groups} groups"
                raise TesseraError("channels are divided evenly over the groups", got=got)
        try:
            self.window.output_size((self.height, self.width))
        except ValueError as error:
            raise TesseraError(str(error), do="use a smaller kernel or more padding") from None

    @property
    def window(self) -> Window:
        return _window(self.kernel, self.stride, self.dilation, self.padding)

    @property
    def output(self) -> Pair:
        """Height and width of the output."""
        return _output(self.window, self.height, self.width)

    @property
    def outputs(self) -> int:
        """Sticks of the output."""
        height, width = self.output
        return self.batch * height * width

    @property
    def inputs(self) -> int:
        """Sticks of the input."""
        return self.batch * self.height * self.width

    @property
    def is_matmul(self) -> bool:
        """Every output reads one stick, its own: no halo, no windows."""
        return self.kernel == self.stride == (1, 1) and self.padding == ((0, 0), (0, 0))

    @property
    def flops(self) -> int:
        taps = self.kernel[0] * self.kernel[1] * self.in_channels // self.groups
        return 2 * self.outputs * self.out_channels * taps


# A search asks for the same windows and sizes thousands of times.
@lru_cache(maxsize=1024)
def _window(kernel: Pair, stride: Pair, dilation: Pair, padding: tuple[Pair, Pair]) -> Window:
    return Window(kernel, stride, dilation, padding)


@lru_cache(maxsize=1024)
def _output(window: Window, height: int, width: int) -> Pair:
    found = window.output_size((height, width))
    return found[0], found[1]
