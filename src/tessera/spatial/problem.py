"""The problem of a halo case: the convolution, the image and its split over ranks, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.geometry.halo import PADDING_MODES, PaddingMode
from tessera.geometry.partition import build_mesh

# bytes per value of each supported dtype
DTYPES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
SizePair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloProblem:
    """An image, a convolution and a split. Sizes are (height, width).

    >>> params = {"image_size": 8, "kernel": 3, "padding": 1, "slice_method": "vertical", "num_spatial_parts": 2}
    >>> HaloProblem.of(params).plan()
    HaloPlan(Window(kernel 3x3, padding 1:1x1:1), 2 workers, 16 pixels move)
    """

    image: SizePair
    batch: int
    in_channels: int
    out_channels: int
    mesh: Mesh
    window: Window
    mode: PaddingMode
    dtype: str

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> HaloProblem:
        """Parse the parameters of a case. Refuse images that cannot be split, and windows that do not fit."""
        counts = {name: params.get(name, 1) for name in ("batch_size", "in_channels", "out_channels")}
        for name, value in counts.items():
            if not isinstance(value, int) or value < 1:
                raise TesseraError(_format_option(name), got=value, allowed="1 or more")
        if params.get("dtype", "float32") not in DTYPES:
            raise TesseraError("unknown dtype", got=params["dtype"], allowed=DTYPES)
        if params.get("padding_mode", "zeros") not in PADDING_MODES:
            raise TesseraError("unknown padding mode", got=params["padding_mode"], allowed=PADDING_MODES)
        image = parse_size_pair(params["image_size"], "image_size", minimum=1)
        try:
            mesh = build_mesh(str(params["slice_method"]), int(params["num_spatial_parts"]))
            window = Window.of(
                parse_size_pair(params["kernel"], "kernel", minimum=1),
                stride=parse_size_pair(params.get("stride", 1), "stride", minimum=1),
                dilation=parse_size_pair(params.get("dilation", 1), "dilation", minimum=1),
                padding=parse_size_pair(params["padding"], "padding", minimum=0),
            )
            problem = cls(
                image=image,
                batch=counts["batch_size"],
                in_channels=counts["in_channels"],
                out_channels=counts["out_channels"],
                mesh=mesh,
                window=window,
                mode=params.get("padding_mode", "zeros"),
                dtype=params.get("dtype", "float32"),
            )
            window.compute_output_size(image)
        except ValueError as error:
            raise TesseraError(str(error)) from None
        if mesh.rows > image[0] or mesh.cols > image[1]:
            raise TesseraError(
                "more parts than pixels",
                got=f"{mesh.rows}x{mesh.cols} parts of {image[0]}x{image[1]} pixels",
                do="split into fewer parts, or use a larger image",
            )
        return problem

    @property
    def parts(self) -> int:
        return self.mesh.size

    @property
    def output(self) -> tuple[int, ...]:
        """Height and width of the output."""
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


def parse_size_pair(value: Any, name: str, *, minimum: int) -> SizePair:
    """Parse a size: one number for both dims, or height and width."""
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or not all(isinstance(size, int) and size >= minimum for size in both):
        raise TesseraError(_format_option(name), got=value, allowed=f"{minimum} or more, or HEIGHTxWIDTH")
    return both[0], both[1]


def _format_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
