"""Which input a window reads for an output: the one question behind every halo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.geometry.box import Box, Interval

Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window over the spatial dims of an image: of a convolution, a pool, a resampling.

    Everything is one entry per spatial dim; `padding` has a pair (before, after) for each. A transposed window
    spreads each input over `kernel` outputs, as `torch.nn.ConvTranspose2d` does; it alone has `output_padding`.

    >>> Window.of(3, padding=1)
    Window(kernel 3x3, padding 1:1x1:1)
    >>> Window.of(3, stride=2, padding=1).output_size((8, 8))
    (4, 4)
    >>> Window.of(3, stride=2, padding=1).needs(Box.of((0, 1), (0, 2), (2, 4)))
    Box(0:1, -1:4, 3:8)
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Padding
    ceil_mode: bool = False
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        dims = len(self.kernel)
        if not dims:
            raise ValueError("a window needs at least one dim")
        if not dims == len(self.stride) == len(self.dilation) == len(self.padding):
            raise ValueError(f"a window of {dims} dims needs as many strides, dilations and paddings; got {self!r}")
        if min(self.kernel + self.stride + self.dilation) < 1:
            raise ValueError(f"kernel, stride and dilation are 1 or more; got {self!r}")
        if min(min(pair) for pair in self.padding) < 0 or min((0, *self.output_padding)) < 0:
            raise ValueError(f"padding is 0 or more; got {self!r}")
        if len(self.output_padding) != (dims if self.transposed else 0):
            raise ValueError("output padding belongs to transposed windows, one entry per dim")
        for more, stride, dilation in zip(self.output_padding, self.stride, self.dilation, strict=False):
            if more >= max(stride, dilation):
                raise ValueError(f"output padding is less than the stride or the dilation; got {self!r}")
        if self.transposed and self.ceil_mode:
            raise ValueError("ceil mode belongs to pools, not to transposed windows")

    @classmethod
    def of(
        cls,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int | tuple[int, int]] = 0,
        ceil_mode: bool = False,
        transposed: bool = False,
        output_padding: int | Sequence[int] = 0,
        dims: int = 2,
    ) -> Window:
        """From single numbers, which hold for every dim, or one entry per dim; a padding may be a pair per dim."""
        if not isinstance(kernel, int):
            dims = len(kernel)
        more = _each(output_padding, dims)
        paddings: Sequence[int | tuple[int, int]] = [padding] * dims if isinstance(padding, int) else padding
        return cls(
            _each(kernel, dims),
            _each(stride, dims),
            _each(dilation, dims),
            tuple((p, p) if isinstance(p, int) else (int(p[0]), int(p[1])) for p in paddings),
            ceil_mode,
            transposed,
            more if transposed or any(more) else (),
        )

    @classmethod
    def point(cls, dims: int = 2) -> Window:
        """Reads one pixel for each: a re-partition or a gathering is a halo exchange with this window."""
        return cls.of(1, dims=dims)

    @property
    def reach(self) -> tuple[int, ...]:
        """How many pixels a window spans in each dim."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """The sizes of the output image, by torch's rules.

        >>> Window.of(2, stride=2, ceil_mode=True).output_size((7, 6))
        (4, 3)
        >>> Window.of(3, stride=2, padding=1, transposed=True, output_padding=1).output_size((4, 4))
        (8, 8)
        """
        if len(size) != len(self.kernel):
            raise ValueError(f"a window of {len(self.kernel)} dims on an image of {len(size)}")
        return tuple(self._output_size(axis, length) for axis, length in enumerate(size))

    def _output_size(self, axis: int, size: int) -> int:
        stride, (before, after), reach = self.stride[axis], self.padding[axis], self.reach[axis]
        if self.transposed:
            found = (size - 1) * stride + reach - before - after + self.output_padding[axis]
        else:
            room = size + before + after - reach
            steps = -(-room // stride) if self.ceil_mode else room // stride
            if self.ceil_mode and steps * stride >= size + before:
                steps -= 1  # the last window may stick out, but it begins inside
            found = steps + 1
        if found < 1:
            raise ValueError(
                f"a window that spans {reach} pixels does not fit an image of {size} padded by {before} and {after}"
            )
        return found

    def needs(self, output: Box) -> Box:
        """The input that an output box reads; what lies outside of the image is padding."""
        if not output:
            return Box((output.dims[0], *(Interval(0, 0) for _ in self.kernel)))
        sample, *spatial = output.dims
        return Box((sample, *(self._needs(axis, part) for axis, part in enumerate(spatial))))

    def _needs(self, axis: int, output: Interval) -> Interval:
        stride, before, reach = self.stride[axis], self.padding[axis][0], self.reach[axis]
        if self.transposed:  # output o is reached from input i where o = i * stride - before + (0 … reach - 1)
            first = -(-(output.start + before - reach + 1) // stride)
            return Interval(first, (output.stop - 1 + before) // stride + 1)
        first = output.start * stride - before
        return Interval(first, (output.stop - 1) * stride - before + reach)

    def __repr__(self) -> str:
        parts = [f"kernel {_times(self.kernel)}"]
        for name, values in (("stride", self.stride), ("dilation", self.dilation)):
            if set(values) != {1}:
                parts.append(f"{name} {_times(values)}")
        if any(p != (0, 0) for p in self.padding):
            parts.append(f"padding {'x'.join(f'{a}:{b}' for a, b in self.padding)}")
        if any(self.output_padding):
            parts.append(f"output padding {_times(self.output_padding)}")
        parts += [word for word, said in (("ceil", self.ceil_mode), ("transposed", self.transposed)) if said]
        return f"Window({', '.join(parts)})"


def _each(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(int(v) for v in value)


def _times(values: Sequence[int]) -> str:
    return "x".join(map(str, values))
