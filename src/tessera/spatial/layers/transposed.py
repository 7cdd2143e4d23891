"""Transposed convolutions on tiles: each output gathers from the inputs that spread to it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from tessera.geometry import HaloPlan, Window
from tessera.spatial.layers.framed import Frames, shape_of, unreached
from tessera.spatial.layers.layer import AsItIs, Layer, is_cut, makes
from tessera.spatial.placed import Placed, Settings

TRANSPOSED: dict[int, Any] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
ConvTransposeNd = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@makes(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed_convolution(module: ConvTransposeNd, placed: Placed, settings: Settings) -> Layer:
    window = Window.of(
        module.kernel_size,
        stride=module.stride,
        dilation=module.dilation,
        padding=tuple(map(int, module.padding)),
        transposed=True,
        output_padding=module.output_padding,
    )
    output = placed.resized(window.output_size(placed.sizes[1:]))
    if not is_cut(placed):
        return AsItIs(module, placed, output)
    return TransposedConvolution(module, HaloPlan(placed.partition, window, output.partition), output, settings)


class TransposedConvolution:
    """The frame spread without any padding, then cut or widened to this rank's output."""

    def __init__(self, module: ConvTransposeNd, plan: HaloPlan, placed: Placed, settings: Settings) -> None:
        self._module, self.placed = module, placed
        self._frames = Frames(plan, settings)
        self._margins = _margins(self._frames, plan.window)

    def __call__(self, tile: Tensor) -> Tensor:
        return self._frames.apply(tile, self._spread)

    def _spread(self, frame: Tensor) -> Tensor:
        module, weight, bias = self._module, self._module.weight, self._module.bias
        reached = max(self._margins) <= 0  # every output, by some input
        if not frame.numel():
            shape = shape_of(self._frames.output, weight.shape[1] * module.groups)
            found = unreached(shape, frame, weight)
        else:
            spread = TRANSPOSED[len(module.kernel_size)]
            inside = bias if reached else None
            found = spread(frame, weight, inside, module.stride, 0, 0, module.groups, module.dilation)
            if any(self._margins):
                found = F.pad(found, self._margins)
            if reached:
                return found
        return found if bias is None else found + bias.view(-1, *(1 for _ in module.kernel_size))


def _margins(frames: Frames, window: Window) -> list[int]:
    """How much the output sticks out of what the frame spreads to, before and after, the last dim first.

    Less than nothing is cut off. More is where nothing reaches: output padding, or a stride longer than the window.
    """
    found: list[int] = []
    for axis in reversed(range(len(window.kernel))):
        need, output = frames.mine.need.dims[axis + 1], frames.output.dims[axis + 1]
        stride, before, reach = window.stride[axis], window.padding[axis][0], window.reach[axis]
        first, end = need.start * stride - before, (need.stop - 1) * stride - before + reach
        found += [first - output.start, output.stop - end]
    return found
