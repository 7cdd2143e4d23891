"""The problem of a halo case: the convolution, the image and its split over ranks, as typed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Partition, Window
from tessera.geometry.box import format_sizes
from tessera.geometry.halo import PADDING_MODES, PaddingMode
from tessera.geometry.partition import count_parts

# bytes per value of each supported dtype
DIM_NAMES = {2: "HEIGHTxWIDTH", 3: "DEPTHxHEIGHTxWIDTH"}
DTYPES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}


MAX_SIZE, MAX_PARTS = 1 << 24, 1 << 16  # larger problems would take hours to plan


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloProblem:
    """An image, a convolution and a split. Sizes are (height, width), or (depth, height, width) of a volume.

    `mesh` has the number of parts of each dim.

    >>> params = {"image_size": 8, "kernel": 3, "padding": 1, "slice_method": "vertical", "num_spatial_parts": 2}
    >>> HaloProblem.of(params).plan()
    HaloPlan(Window(kernel 3x3, padding 1:1x1:1), 2 workers, 16 pixels move)
    """

    image: tuple[int, ...]
    batch: int
    in_channels: int
    out_channels: int
    mesh: tuple[int, ...]
    window: Window
    mode: PaddingMode
    dtype: str

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> HaloProblem:
        """Parse the parameters of a case. Refuse images that cannot be split, and windows that do not fit."""
        sizes = {name: params.get(name, 1) for name in ("batch_size", "in_channels", "out_channels")}
        for name, value in sizes.items():
            if not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
                raise TesseraError(_format_option(name), got=value, allowed=f"1 to {MAX_SIZE:,}")
        if params.get("dtype", "float32") not in DTYPES:
            raise TesseraError("unknown dtype", got=params["dtype"], allowed=DTYPES)
        if params.get("padding_mode", "zeros") not in PADDING_MODES:
            raise TesseraError("unknown padding mode", got=params["padding_mode"], allowed=PADDING_MODES)
        image = parse_image_size(params["image_size"])
        if max(image) > MAX_SIZE:
            raise TesseraError("the image is too large", got=format_sizes(image), allowed=f"up to {MAX_SIZE:,} per dim")
        if not isinstance(params["num_spatial_parts"], int) or params["num_spatial_parts"] > MAX_PARTS:
            got = params["num_spatial_parts"]
            raise TesseraError(_format_option("num_spatial_parts"), got=got, allowed=f"up to {MAX_PARTS:,}")
        dims = len(image)

        def parse(name: str, minimum: int) -> tuple[int, ...]:
            return parse_dim_sizes(params.get(name, 1), name, minimum=minimum, dims=dims)

        try:
            counts = count_parts(str(params["slice_method"]), int(params["num_spatial_parts"]), dims=dims)
            window = Window.of(
                parse("kernel", 1),
                stride=parse("stride", 1),
                dilation=parse("dilation", 1),
                padding=parse("padding", 0),
            )
            problem = cls(
                image=image,
                batch=sizes["batch_size"],
                in_channels=sizes["in_channels"],
                out_channels=sizes["out_channels"],
                mesh=counts,
                window=window,
                mode=params.get("padding_mode", "zeros"),
                dtype=params.get("dtype", "float32"),
            )
            window.compute_output_size(image)
        except ValueError as error:
            raise TesseraError(str(error)) from None
        if any(count > size for count, size in zip(counts, image, strict=True)):
            raise TesseraError(
                "the mesh has more parts than the image has pixels along a dim",
                got=f"{format_sizes(counts)} parts of {format_sizes(image)} pixels",
                do="split into fewer parts, or use a larger image",
            )
        return problem

    @property
    def parts(self) -> int:
        return prod(self.mesh)

    @property
    def output(self) -> tuple[int, ...]:
        """Sizes of the output."""
        return self.window.compute_output_size(self.image)

    def plan(self) -> HaloPlan:
        """Return the halo plan, with the same partition that the layers of a network use."""
        try:
            return HaloPlan(
                Partition.split_by_grid((self.batch, *self.image), self.mesh),
                self.window,
                Partition.split_by_grid((self.batch, *self.output), self.mesh),
                self.mode,
            )
        except ValueError as error:
            raise TesseraError(str(error)) from None

    def list_layers(self, count: int) -> list[HaloProblem]:
        """Return the convolutions of a stack: this convolution, then convolutions of the previous output."""
        layers = [self]
        for number in range(2, count + 1):
            height, width = layers[-1].output
            layer = replace(layers[-1], image=(height, width), in_channels=self.out_channels)
            try:
                layer.window.compute_output_size(layer.image)
            except ValueError as error:
                raise TesseraError(f"layer {number} of {count} does not fit: {error}") from None
            layers.append(layer)
        return layers

    @property
    def pixel_bytes(self) -> int:
        """Bytes of an input pixel with all its channels."""
        return self.in_channels * DTYPES[self.dtype]

    @property
    def flops(self) -> int:
        """Floating point operations of the forward pass of the unsplit convolution; a multiply-add counts as two."""
        return 2 * self.batch * prod(self.output) * self.out_channels * self.in_channels * prod(self.window.kernel)

    @property
    def footprint(self) -> int:
        """Bytes of the image, the output and the weights of the unsplit convolution."""
        values = self.batch * (prod(self.image) * self.in_channels + prod(self.output) * self.out_channels)
        return DTYPES[self.dtype] * (values + self.out_channels * self.in_channels * prod(self.window.kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProblem:
    """A network, its image and a split; see `HaloProblem` for the sizes."""

    model: str
    image: tuple[int, ...]
    batch: int
    in_channels: int
    mesh: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> NetworkProblem:
        """Parse the parameters of a case. Refuse images that cannot be split."""
        one_pixel = HaloProblem.of({**params, "kernel": 1, "padding": 0})
        return cls(
            model=str(params["model"]),
            image=one_pixel.image,
            batch=one_pixel.batch,
            in_channels=one_pixel.in_channels,
            mesh=one_pixel.mesh,
            dtype=one_pixel.dtype,
        )

    @property
    def parts(self) -> int:
        return prod(self.mesh)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeVolume:
    """The amount of data that one exchange moves.

    `received`: bytes received by the busiest rank; `neighbours`: largest number of ranks from which a rank receives;
    `total`: bytes received by all ranks.
    """

    received: int
    neighbours: int
    total: int

    @classmethod
    def of(cls, problem: HaloProblem) -> ExchangeVolume:
        """Count the data that an exchange of a problem's plan moves.

        >>> params = {"image_size": 8, "kernel": 3, "padding": 1, "slice_method": "vertical", "num_spatial_parts": 4}
        >>> ExchangeVolume.of(HaloProblem.of(params))
        ExchangeVolume(received=64, neighbours=2, total=192)
        """
        received, peers = [0] * problem.parts, [0] * problem.parts
        for (_, target), count in problem.plan().count_link_bytes(problem.pixel_bytes).items():
            received[target] += count
            peers[target] += 1
        return cls(received=max(received), neighbours=max(peers), total=sum(received))


def count_directions(params: Mapping[str, Any]) -> int:
    """Return the number of directions in which borders are sent: 1 forward, 2 with `backward` (gradients)."""
    return 2 if params.get("backward") else 1


def parse_image_size(value: Any) -> tuple[int, ...]:
    """Parse the size of an image: one number for height and width, both, or depth, height and width."""
    dims = 2 if isinstance(value, int) or len(value) == 2 else 3
    return parse_dim_sizes(value, "image_size", minimum=1, dims=dims)


def fill_image_size(size: int | Sequence[int], mesh: Sequence[int] | None) -> tuple[int, ...]:
    """Return an image size with all its dims; a single number means a square, or a cube for a mesh of three dims.

    >>> fill_image_size(64, None), fill_image_size(64, (2, 1, 2)), fill_image_size((32, 64), None)
    ((64, 64), (64, 64, 64), (32, 64))
    """
    sizes = (size,) * max(2, len(mesh or ())) if isinstance(size, int) else tuple(size)
    if min(sizes) < 1:
        raise TesseraError("images must have one pixel or more along each dim", got=sizes)
    return sizes


def parse_dim_sizes(value: Any, name: str, *, minimum: int, dims: int) -> tuple[int, ...]:
    """Parse a size: one number for all dims, or one number for each dim."""
    sizes = (value,) * dims if isinstance(value, int) else tuple(value)
    if len(sizes) != dims or not all(isinstance(size, int) and size >= minimum for size in sizes):
        raise TesseraError(_format_option(name), got=value, allowed=f"{minimum} or more, or {DIM_NAMES[dims]}")
    return sizes


def _format_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
