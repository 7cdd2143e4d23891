"""Windows with margins: one exchange of a wide halo serves several windows in a row.

A window that needs a halo fetches enough for `halo_depth` equal windows, and computes an output with a margin. A window
whose input has a sufficient margin fetches nothing; its output has a narrower margin. The adjoint does the same with
output gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tessera.geometry import Box, Interval, Window
from tessera.spatial.tensor.frames import FramePlan
from tessera.spatial.tensor.halo_depth import choose_depth, measure_link, time_computation
from tessera.spatial.tensor.layout import TensorLayout, make_plain_layout
from tessera.spatial.tensor.margins import contains, grow_layout
from tessera.spatial.tensor.rules.window_plans import WindowPlan, list_grad_frames, list_input_frames, list_native
from tessera.spatial.tensor.split_tensor import Margin, SplitGroup, SplitTensor, WideExchange, get_margin
from tessera.spatial.tensor.transfer import index_part


@dataclass(frozen=True, slots=True, kw_only=True)
class WideWindow:
    """The frames of a window whose output (backward: input gradient) has the boxes of `result`.

    `fetched` has the box of the tensor that each frame contains; None if a frame lacks pixels of the rank's own part.
    """

    result: TensorLayout
    frames: FramePlan
    fetched: TensorLayout | None


class WideFrame:
    """A frame, the layout of the result that is computed from it, and the exchange that provided its halo."""

    __slots__ = ("exchange", "pixels", "result", "uses", "window")

    def __init__(self, pixels: Tensor, window: WideWindow, exchange: WideExchange, uses: int) -> None:
        self.pixels, self.window, self.result, self.exchange, self.uses = pixels, window, window.result, exchange, uses


def build_wide_frame(
    tensor: SplitTensor,
    plan: WindowPlan,
    window: Window,
    compute: Callable[[], object],
    *,
    saved: SplitTensor | None = None,
) -> WideFrame | None:
    """Return the frame of a window, from a margin or by an exchange for several windows; None if it needs no halo.

    `compute` runs the window without a margin; it is only timed. For the adjoint, `tensor` is the output gradient and
    `saved` is the input that the forward pass saved.
    """
    backward = saved is not None
    group = tensor.group
    margin = get_margin(tensor)
    if margin is not None:
        inside = _plan(group, plan, window, margin.layout, 0, backward)
        if inside is not None:
            exchange, uses = margin.exchange, margin.uses + (not _is_pointwise(window))
            exchange.uses = max(exchange.uses, uses)
            group.log.note("inside the margin")
            source = SplitTensor(margin.wide, margin.layout, group)
            return WideFrame(inside.frames.build(source, scratch=True), inside, exchange, uses)
    if (plan.grads if backward else plan.inputs).is_local:
        return None
    exchange = _start_exchange(group, plan, window, compute, tensor.itemsize, backward)
    if saved is not None:
        exchange.depth = min(exchange.depth, _limit_backward(saved))
    group.log.note(f"halo for {exchange.depth} windows")
    wide = _plan(group, plan, window, tensor.layout_on_ranks, exchange.depth, backward)
    assert wide is not None
    keep = exchange.depth > 1 and wide.fetched is not None and tensor.margin is None and tensor.source is None
    pixels = wide.frames.build(tensor, scratch=not keep)
    if keep and wide.fetched is not None:
        own = wide.fetched.get_dim_box(group.rank)
        received = pixels[index_part(wide.frames.frame, own)] if own else pixels
        tensor.margin = Margin(received, wide.fetched, tensor.writes[0], False, exchange, 0)
    return WideFrame(pixels, wide, exchange, 1)


def _limit_backward(saved: SplitTensor) -> int:
    """Return the number of adjoint windows that a halo of gradients can serve.

    Activation functions between two windows multiply gradients by values that the forward pass saved. The margin of a
    gradient therefore cannot be wider than the margin of these values, which ends at an exchange of the forward pass.
    """
    margin = get_margin(saved)
    if margin is None or not margin.is_shared:
        return 1
    return 1 + max(0, min(margin.uses, margin.exchange.depth - margin.uses))


def _start_exchange(
    group: SplitGroup,
    plan: WindowPlan,
    window: Window,
    compute: Callable[[], object],
    itemsize: int,
    backward: bool,
) -> WideExchange:
    """Return a new exchange, with the fixed depth or, for "auto", the chosen depth.

    A chosen depth is at most the number of windows that used this exchange in the previous pass.
    """
    group.exchange_count += 1
    if group.halo_depth != "auto":
        return WideExchange(group.halo_depth, group.exchange_count)
    key = "depth", plan.layout, plan.output, window, itemsize, backward
    if key not in group.plans:
        if group.link is None:
            group.link = measure_link(group.transport)
        source, result = (plan.output, plan.layout) if backward else (plan.layout, plan.output)
        group.plans[key] = choose_depth(
            result,
            find_reach(window, backward),
            link=group.link,
            pixel_bytes=source.shape[1] * itemsize,
            seconds=time_computation(compute, group.transport),
        )
    depth, place = group.plans[key], len(group.exchanges)
    if place < len(group.last_exchanges) and group.last_exchanges[place][0] == key:
        depth = min(depth, group.last_exchanges[place][1].uses)
    exchange = WideExchange(depth, group.exchange_count)
    group.exchanges.append((key, exchange))
    return exchange


def build_own_frame(
    tensor: SplitTensor, plan: WindowPlan, window: Window, fill: float = 0.0, *, scratch: bool = False
) -> Tensor:
    """Return the frame of the rank's own output, without an exchange if the tensor has a sufficient margin."""
    group, margin = tensor.group, get_margin(tensor)
    if margin is None:
        return plan.inputs.build(tensor, fill, scratch=scratch)
    key = "own frame", plan.output, margin.layout, window, plan.padding
    if key not in group.plans:
        native = list_native(plan, window) if plan.padding else [False] * len(window.kernel)
        frames = list_input_frames(window, margin.layout, plan.output, native)
        group.plans[key] = FramePlan(group, margin.layout, frames) if _covers(margin.layout, frames) else None
    inside: FramePlan | None = group.plans[key]
    if inside is None:
        return plan.inputs.build(tensor, fill, scratch=scratch)
    margin.exchange.uses = max(margin.exchange.uses, margin.uses + (not _is_pointwise(window)))
    return inside.build(SplitTensor(margin.wide, margin.layout, group), fill, scratch=scratch)


def _is_pointwise(window: Window) -> bool:
    return set(window.extent) == {1} and set(window.stride) == {1}


def _covers(layout: TensorLayout, frames: list[Box]) -> bool:
    """Return whether every rank has the pixels of its frame that are inside of the image."""
    image = Box.from_sizes(layout.shape)
    return all((frame & image) in layout.get_dim_box(rank) for rank, frame in enumerate(frames))


def _plan(
    group: SplitGroup, plan: WindowPlan, window: Window, source: TensorLayout, depth: int, backward: bool
) -> WideWindow | None:
    """Plan a window that reads `source`: without an exchange (depth 0; None if impossible), or for `depth` windows."""
    key = "wide", plan.layout, plan.output, window, source, depth, backward
    if key not in group.plans:
        group.plans[key] = _make_plan(group, plan, window, source, depth, backward)
    wide: WideWindow | None = group.plans[key]
    return wide


def _make_plan(
    group: SplitGroup, plan: WindowPlan, window: Window, source: TensorLayout, depth: int, backward: bool
) -> WideWindow | None:
    own = plan.layout if backward else plan.output  # layout of the result without a margin
    native = list_native(plan, window)
    if depth:
        before, after = find_reach(window, backward)
        result = grow_layout(own, [(depth - 1) * reach for reach in before], [(depth - 1) * reach for reach in after])
    else:
        find = find_complete_inputs if backward else find_complete_outputs
        result = _shrink_to_computable(source, own, window, find)
        if not contains(result, own):
            return None
    frames = (
        list_grad_frames(window, result, plan.output, native)
        if backward
        else list_input_frames(window, plan.layout, result, native)
    )
    if not depth and not _covers(source, frames):
        return None
    image = Box.from_sizes(source.shape)
    inside = [frame & image for frame in frames]
    fetched = None
    if depth and all(box for box in inside):
        candidate = make_plain_layout(source.shape, inside)
        fetched = candidate if contains(candidate, source) else None
    return WideWindow(result=result, frames=FramePlan(group, source, frames), fetched=fetched)


def find_reach(window: Window, backward: bool) -> tuple[list[int], list[int]]:
    """Return how many pixels before and after the output's position a window with stride one reads in each dim."""
    first = [before for before, _ in window.padding]
    last = [max(0, extent - 1 - before) for extent, before in zip(window.extent, first, strict=True)]
    return (last, first) if backward else (first, last)


def _shrink_to_computable(source: TensorLayout, own: TensorLayout, window: Window, find: Any) -> TensorLayout:
    """Return, for each rank, the largest result box that can be computed from the rank's box in `source` alone.

    Nothing is communicated. `find` is `find_complete_outputs` (forward) or `find_complete_inputs` (adjoint).
    """
    lead = len(source.shape) - len(window.kernel)
    boxes = []
    for rank in range(source.ranks):
        have, result = source.get_dim_box(rank), own.get_dim_box(rank)
        dims = [
            find(window, dim, have.dims[lead + dim], source.shape[lead + dim], own.shape[lead + dim])
            for dim in range(len(window.kernel))
        ]
        boxes.append(Box((*result.dims[:lead], *dims)) if result else result)
    return make_plain_layout(own.shape, boxes)


def find_complete_outputs(window: Window, dim: int, have: Interval, size: int, output_size: int) -> Interval:
    """Return the outputs along a dim whose windows read only padding and pixels of the interval `have`.

    >>> find_complete_outputs(Window.of(3, padding=1), 0, Interval(0, 8), 16, 16)
    Interval(0:7)
    """
    stride, before, extent = window.stride[dim], window.padding[dim][0], window.extent[dim]
    first = 0 if have.start <= 0 else -(-(have.start + before) // stride)
    last = output_size if have.stop >= size else (have.stop + before - extent) // stride + 1
    return Interval(min(first, output_size), min(last, output_size))


def find_complete_inputs(window: Window, dim: int, have: Interval, output_size: int, size: int) -> Interval:
    """Return the pixels along a dim that are read only by outputs of the interval `have`.

    >>> find_complete_inputs(Window.of(3, padding=1), 0, Interval(0, 8), 16, 16)
    Interval(0:7)
    """
    stride, before, extent = window.stride[dim], window.padding[dim][0], window.extent[dim]
    first = 0 if have.start <= 0 else (have.start - 1) * stride - before + extent
    last = size if have.stop >= output_size else have.stop * stride - before
    return Interval(max(0, min(first, size)), min(last, size))
