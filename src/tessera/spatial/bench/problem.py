"""One convolution of one image that is cut over ranks, as plain figures: what every halo case is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.geometry.halo import MODES, Mode
from tessera.geometry.partition import mesh_of

# bytes of a number of each format that tiles can have
DTYPES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The image, the convolution and the cut. Sizes are (height, width).

    >>> params = {"image_size": 8, "kernel": 3, "padding": 1, "slice_method": "vertical", "num_spatial_parts": 2}
    >>> Problem.of(params).plan()
    HaloPlan(Window(kernel 3x3, padding 1:1x1:1), 2 workers, 16 pixels move)
    """

    image: Pair
    batch: int
    in_channels: int
    out_channels: int
    mesh: Mesh
    window: Window
    mode: Mode
    dtype: str

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Problem:
        """From the parameters of a case; what cannot be cut or does not fit is refused here, before anything runs."""
        counts = {name: params.get(name, 1) for name in ("batch_size", "in_channels", "out_channels")}
        for name, value in counts.items():
            if not isinstance(value, int) or value < 1:
                raise TesseraError(_option(name), got=value, allowed="1 or more")
        if params.get("dtype", "float32") not in DTYPES:
            raise TesseraError("unknown dtype", got=params["dtype"], allowed=DTYPES)
        if params.get("padding_mode", "zeros") not in MODES:
            raise TesseraError("unknown padding mode", got=params["padding_mode"], allowed=MODES)
        image = pair(params["image_size"], "image_size", least=1)
        try:
            mesh = mesh_of(str(params["slice_method"]), int(params["num_spatial_parts"]))
            window = Window.of(
                pair(params["kernel"], "kernel", least=1),
                stride=pair(params.get("stride", 1), "stride", least=1),
                dilation=pair(params.get("dilation", 1), "dilation", least=1),
                padding=pair(params["padding"], "padding", least=0),
            )
            found = cls(
                image=image,
                batch=counts["batch_size"],
                in_channels=counts["in_channels"],
                out_channels=counts["out_channels"],
                mesh=mesh,
                window=window,
                mode=params.get("padding_mode", "zeros"),
                dtype=params.get("dtype", "float32"),
            )
            window.output_size(image)
        except ValueError as error:
            raise TesseraError(str(error)) from None
        if mesh.rows > image[0] or mesh.cols > image[1]:
            raise TesseraError(
                "more parts than pixels",
                got=f"{mesh.rows}x{mesh.cols} parts of {image[0]}x{image[1]} pixels",
                do="cut into fewer parts, or take a larger image",
            )
        return found

    @property
    def parts(self) -> int:
        return self.mesh.size

    @property
    def output(self) -> tuple[int, ...]:
        """Height and width of the output."""
        return self.window.output_size(self.image)

    def plan(self) -> HaloPlan:
        """Who sends what to whom; cut as the layers of a network cut their activations."""
        try:
            return HaloPlan(
                Partition.grid((self.batch, *self.image), self.mesh),
                self.window,
                Partition.grid((self.batch, *self.output), self.mesh),
                self.mode,
            )
        except ValueError as error:
            raise TesseraError(str(error)) from None

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel of the input with all its channels."""
        return self.in_channels * DTYPES[self.dtype]

    @property
    def flops(self) -> int:
        """Of the whole convolution forward; a multiply-add is two."""
        return 2 * self.batch * prod(self.output) * self.out_channels * self.in_channels * prod(self.window.kernel)

    @property
    def footprint(self) -> int:
        """Bytes of the image, the output and the weights, uncut."""
        values = self.batch * (prod(self.image) * self.in_channels + prod(self.output) * self.out_channels)
        return DTYPES[self.dtype] * (values + self.out_channels * self.in_channels * prod(self.window.kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class Borders:
    """What one exchange moves: bytes that the busiest rank receives, from how many others, and bytes of all ranks."""

    received: int
    neighbours: int
    total: int

    @classmethod
    def of(cls, problem: Problem) -> Borders:
        """Of a problem's plan.

        >>> params = {"image_size": 8, "kernel": 3, "padding": 1, "slice_method": "vertical", "num_spatial_parts": 4}
        >>> Borders.of(Problem.of(params))
        Borders(received=64, neighbours=2, total=192)
        """
        received, peers = [0] * problem.parts, [0] * problem.parts
        for (_, target), count in problem.plan().bytes_between(problem.pixel_bytes).items():
            received[target] += count
            peers[target] += 1
        return cls(received=max(received), neighbours=max(peers), total=sum(received))


def ways(params: Mapping[str, Any]) -> int:
    """How often borders travel in one exchange of a case: there, and with backward as gradients back."""
    return 2 if params.get("backward") else 1


def pair(value: Any, name: str, *, least: int) -> Pair:
    """Height and width from one number, which holds for both, or two."""
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or not all(isinstance(size, int) and size >= least for size in both):
        raise TesseraError(_option(name), got=value, allowed=f"{least} or more, or HEIGHTxWIDTH")
    return both[0], both[1]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
