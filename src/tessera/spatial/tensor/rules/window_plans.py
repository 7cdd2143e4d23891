"""Plans of operators with windows: the frame that a rank's output reads, and the gradients that its input affects.

Forward, a rank fetches the frame of its part of the output. Backward, it fetches the output gradients whose windows
touch its part of the input. Only weight gradients are all-reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tessera.geometry import Box, Interval, Window
from tessera.spatial.tensor.frames import FramePlan
from tessera.spatial.tensor.layout import TensorLayout, make_plain_layout
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor, redistribute


def spread(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    """Return one value per spatial dim; torch passes one value for all."""
    return tuple(values) * spatial if len(values) == 1 else tuple(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """The plan of a window operator: layouts of input and output, and the frames forward and backward.

    `padding` is the padding that the local operator applies itself, in dims that are not split. `inputs` builds the
    frame that the rank's output reads; `grads` builds the frame of output gradients that depend on its part of the
    input.
    """

    layout: TensorLayout  # of the input
    output: TensorLayout
    padding: tuple[int, ...]
    inputs: FramePlan
    grads: FramePlan


def choose_tiles(tensor: Tensor, spatial: int, group: SplitGroup) -> TensorLayout | None:
    """Return the layout in which a window operator reads a tensor; None to keep the layout, without a halo."""
    shape = tuple(tensor.shape)
    dims = range(len(shape) - spatial, len(shape))
    if isinstance(tensor, SplitTensor):
        layout = tensor.layout_on_ranks
        if not layout.is_whole and not set(layout.split_dims) & {1, *dims} and layout.is_plain and layout.is_exclusive:
            return None  # split by samples
        if layout.is_plain and layout.is_exclusive and not set(layout.split_dims) - set(dims):
            return layout
    return group.get_tiles(shape, spatial)


def stays_whole(tensor: Tensor, spatial: int, group: SplitGroup) -> bool:
    """Return whether an image that every rank has is too small to be worth splitting."""
    if isinstance(tensor, SplitTensor) and not tensor.layout_on_ranks.is_whole:
        return False
    return any(size < 2 * group.ranks for size in tensor.shape[len(tensor.shape) - spatial :])


def find_output_size(window: Window, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the size of the output; None if torch refuses the window (the rule then leaves the error to torch)."""
    try:
        return tuple(window.compute_output_size(sizes))
    except ValueError:
        return None


def make_dims_box(shape: Sequence[int], spatial: Sequence[Interval]) -> Box:
    lead = len(shape) - len(spatial)
    return Box((*(Interval(0, size) for size in shape[:lead]), *spatial))


def plan_window(
    group: SplitGroup, layout: TensorLayout, channels: int, window: Window, output_size: Sequence[int]
) -> WindowPlan:
    """Plan a window operator on tiles. `channels` is the number of output channels."""
    key = "window", layout, channels, window, tuple(output_size)
    if key in group.plans:
        plan: WindowPlan = group.plans[key]
        return plan
    shape, spatial = layout.shape, len(window.kernel)
    lead = len(shape) - spatial
    output_shape = (*shape[: lead - 1], channels, *output_size)
    output = group.get_tiles(output_shape, spatial)
    native = tuple(
        dim + lead not in layout.split_dims and dim + lead not in output.split_dims for dim in range(spatial)
    )
    padding = tuple(window.padding[dim][0] if native[dim] else 0 for dim in range(spatial))
    plan = WindowPlan(
        layout=layout,
        output=output,
        padding=padding,
        inputs=FramePlan(group, layout, list_input_frames(window, layout, output, native)),
        grads=FramePlan(group, output, list_grad_frames(window, layout, output, native)),
    )
    group.plans[key] = plan
    return plan


def list_input_frames(window: Window, layout: TensorLayout, output: TensorLayout, native: Sequence[bool]) -> list[Box]:
    """Return the box of the input that the output of each rank reads; it may exceed the image."""
    spatial = len(window.kernel)
    lead = len(layout.shape) - spatial
    frames = []
    for rank in range(layout.ranks):
        result = output.get_dim_box(rank)
        read = window.compute_input_box(Box((Interval(0, 1), *result.dims[lead:]))).dims[1:]
        if not result:
            read = (Interval(0, 0),) * spatial
        read = tuple(
            Interval(0, layout.shape[lead + dim]) if native[dim] and result else part for dim, part in enumerate(read)
        )
        frames.append(make_dims_box(layout.shape, read))
    return frames


def list_grad_frames(window: Window, layout: TensorLayout, output: TensorLayout, native: Sequence[bool]) -> list[Box]:
    """Return the box of the output whose windows touch the input of each rank."""
    spatial = len(window.kernel)
    lead = len(layout.shape) - spatial
    frames = []
    for rank in range(layout.ranks):
        own = layout.get_dim_box(rank)
        touched = [
            find_outputs(window, dim, own.dims[lead + dim], output.shape[lead + dim])
            if not native[dim]
            else Interval(0, output.shape[lead + dim])
            for dim in range(spatial)
        ]
        frames.append(make_dims_box(output.shape, touched if own else [Interval(0, 0)] * spatial))
    return frames


def find_outputs(window: Window, dim: int, part: Interval, size: int) -> Interval:
    """Return the outputs along a dim whose windows touch an interval of the input."""
    if not len(part):
        return Interval(0, 0)
    stride, before, extent = window.stride[dim], window.padding[dim][0], window.extent[dim]
    first = max(0, -(-(part.start + before - extent + 1) // stride))
    last = min(size, (part.stop - 1 + before) // stride + 1)
    return Interval(min(first, size), max(min(first, size), last))


def crop_to_part(
    grad_frame: Tensor, start: Sequence[int], layout: TensorLayout, group: SplitGroup, native: Sequence[bool] = ()
) -> Tensor:
    """Crop a gradient frame whose first pixel is `start` to this rank's part.

    Pixels outside the frame get zero gradient. Dims marked `native` are not cropped.
    """
    own = layout.get_dim_box(group.rank)
    lead = len(own.dims) - len(start)
    index: list[Any] = [...]
    place: list[Any] = [...]
    complete = True
    for dim, origin in enumerate(start):
        if native and native[dim]:
            index.append(slice(None))
            place.append(slice(None))
            continue
        part = own.dims[lead + dim]
        common = part & Interval(origin, origin + grad_frame.shape[lead + dim])
        complete &= common == part
        stop = max(common.start, common.stop)
        index.append(slice(common.start - origin, stop - origin))
        place.append(slice(common.start - part.start, stop - part.start))
    if complete:
        return grad_frame[tuple(index)]
    result = grad_frame.new_zeros(own.shape)
    result[tuple(place)] = grad_frame[tuple(index)]
    return result


def find_frame_origin(outputs: Sequence[Interval], window: Window) -> list[int]:
    """Return the first pixel along each dim that the windows of some outputs read."""
    return [part.start * window.stride[dim] - window.padding[dim][0] for dim, part in enumerate(outputs)]


def list_native(plan: WindowPlan, window: Window) -> list[bool]:
    lead = len(plan.layout.shape) - len(window.kernel)
    return [
        dim + lead not in plan.layout.split_dims and dim + lead not in plan.output.split_dims
        for dim in range(len(window.kernel))
    ]


def to_layout(tensor: Tensor, layout: TensorLayout, group: SplitGroup) -> SplitTensor:
    """Return a tensor in a layout."""
    if isinstance(tensor, SplitTensor) and tensor.layout_on_ranks is layout:
        return tensor
    return SplitTensor(redistribute(tensor, layout, group), layout, group)


def resize_samples(layout: TensorLayout, shape: Sequence[int]) -> TensorLayout:
    """Return a layout with the same split of dim 0 and different sizes of the other dims."""
    samples = layout.get_dim_intervals(0)
    full = (layout.shape[0], *shape[1:])
    rest = [Interval(0, size) for size in full[1:]]
    return make_plain_layout(full, [Box((part, *rest)) for part in samples])
