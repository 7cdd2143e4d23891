"""Sliding windows: the mapping from an output box to the input box that it reads, which determines the halo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.geometry.box import Box, Interval, format_sizes

PaddingPairs = tuple[tuple[int, int], ...]  # (before, after) for each spatial dim


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window of a convolution, pool or resampling over the spatial dims of an image.

    Every field has one entry per spatial dim; `padding` has a pair (before, after) for each. A transposed window
    spreads each input over `kernel` outputs, as `torch.nn.ConvTranspose2d` does; only transposed windows have
    `output_padding`.

    >>> Window.of(3, padding=1)
    Window(kernel 3x3, padding 1:1x1:1)
    >>> Window.of(3, stride=2, padding=1).compute_output_size((8, 8))
    (4, 4)
    >>> Window.of(3, stride=2, padding=1).compute_input_box(Box.of((0, 1), (0, 2), (2, 4)))
    Box(0:1, -1:4, 3:8)
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: PaddingPairs
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
            raise ValueError(f"kernel, stride and dilation must be 1 or more; got {self!r}")
        if min(min(pair) for pair in self.padding) < 0 or min((0, *self.output_padding)) < 0:
            raise ValueError(f"padding must be 0 or more; got {self!r}")
        if len(self.output_padding) != (dims if self.transposed else 0):
            raise ValueError(f"output padding requires a transposed window, and one entry per dim; got {self!r}")
        for extra, stride, dilation in zip(self.output_padding, self.stride, self.dilation, strict=False):
            if extra >= max(stride, dilation):
                raise ValueError(f"output padding must be less than the stride or the dilation; got {self!r}")
        if self.transposed and self.ceil_mode:
            raise ValueError("ceil mode is not supported for transposed windows")

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
        """Build a window. Arguments are one number for all dims, or one entry per dim; padding entries may be pairs."""
        if not isinstance(kernel, int):
            dims = len(kernel)
        output_paddings = _broadcast(output_padding, dims)
        paddings: Sequence[int | tuple[int, int]] = [padding] * dims if isinstance(padding, int) else padding
        return cls(
            _broadcast(kernel, dims),
            _broadcast(stride, dims),
            _broadcast(dilation, dims),
            tuple((p, p) if isinstance(p, int) else (int(p[0]), int(p[1])) for p in paddings),
            ceil_mode,
            transposed,
            output_paddings if transposed or any(output_paddings) else (),
        )

    @classmethod
    def of_one_pixel(cls, dims: int = 2) -> Window:
        """Return the window that reads one pixel per output; it describes a change of partition, or a gather."""
        return cls.of(1, dims=dims)

    @property
    def extent(self) -> tuple[int, ...]:
        """The number of pixels that the window spans in each dim, including the gaps of a dilation."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def compute_output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the output image, by torch's rules.

        >>> Window.of(2, stride=2, ceil_mode=True).compute_output_size((7, 6))
        (4, 3)
        >>> Window.of(3, stride=2, padding=1, transposed=True, output_padding=1).compute_output_size((4, 4))
        (8, 8)
        """
        if len(size) != len(self.kernel):
            raise ValueError(
                f"a window of {len(self.kernel)} dims requires an image of as many spatial dims; got {len(size)}"
            )
        return tuple(self._compute_output_length(axis, length) for axis, length in enumerate(size))

    def _compute_output_length(self, axis: int, size: int) -> int:
        stride, (before, after), extent = self.stride[axis], self.padding[axis], self.extent[axis]
        if self.transposed:
            length = (size - 1) * stride + extent - before - after + self.output_padding[axis]
        else:
            free = size + before + after - extent
            steps = -(-free // stride) if self.ceil_mode else free // stride
            if self.ceil_mode and steps * stride >= size + before:
                steps -= 1  # the last window may extend beyond the padded image, but must start inside of it
            length = steps + 1
        if length < 1:
            raise ValueError(
                f"a window that spans {extent} pixels does not fit an image of {size} padded by {before} and {after}"
            )
        return length

    def compute_input_box(self, output: Box) -> Box:
        """Return the input box that an output box reads; the part outside of the image is padding."""
        if not output:
            return Box((output.dims[0], *(Interval(0, 0) for _ in self.kernel)))
        sample, *spatial = output.dims
        return Box((sample, *(self._compute_input_interval(axis, part) for axis, part in enumerate(spatial))))

    def _compute_input_interval(self, axis: int, output: Interval) -> Interval:
        stride, before, extent = self.stride[axis], self.padding[axis][0], self.extent[axis]
        if self.transposed:  # input i reaches output o if o = i * stride - before + (0 … extent - 1)
            first = -(-(output.start + before - extent + 1) // stride)
            return Interval(first, (output.stop - 1 + before) // stride + 1)
        first = output.start * stride - before
        return Interval(first, (output.stop - 1) * stride - before + extent)

    def __repr__(self) -> str:
        parts = [f"kernel {format_sizes(self.kernel)}"]
        for name, values in (("stride", self.stride), ("dilation", self.dilation)):
            if set(values) != {1}:
                parts.append(f"{name} {format_sizes(values)}")
        if any(p != (0, 0) for p in self.padding):
            parts.append(f"padding {'x'.join(f'{a}:{b}' for a, b in self.padding)}")
        if any(self.output_padding):
            parts.append(f"output padding {format_sizes(self.output_padding)}")
        parts += [word for word, is_set in (("ceil", self.ceil_mode), ("transposed", self.transposed)) if is_set]
        return f"Window({', '.join(parts)})"


def _broadcast(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(int(v) for v in value)
