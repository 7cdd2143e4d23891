"""Convolutions that compute while their halo is under way.

*split*: the outputs that read own pixels only (the interior) are computed during the exchange, then the borders, and
both are combined. *recompute*: all outputs are computed during the exchange, from a frame without its halo, and the
borders are computed again afterwards. Both sum the same products as one convolution of the whole frame, but a library
may round sums of tensors of other sizes differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.geometry import Box, Interval, Window
from tessera.spatial.tensor.frames import FORMATS, is_channels_last
from tessera.spatial.tensor.rules.wide_windows import find_complete_outputs
from tessera.spatial.tensor.rules.window_plans import WindowPlan, list_native
from tessera.spatial.tensor.split_tensor import SplitTensor
from tessera.spatial.tensor.transfer import Index, index_part


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a rank's output, and the part of its frame that the piece reads."""

    frame: Index
    output: Index


@dataclass(frozen=True, slots=True)
class OverlapPlan:
    """A rank's output in pieces: the interior, which needs no halo (None if there is none), and the borders."""

    interior: _Piece | None
    borders: list[_Piece]


def plan_overlap(plan: WindowPlan, window: Window, rank: int) -> OverlapPlan:
    """Divide the output of a rank."""
    own, output = plan.layout.get_dim_box(rank), plan.output.get_dim_box(rank)
    native, lead = list_native(plan, window), len(output.dims) - len(window.kernel)
    inner = []
    for dim, part in enumerate(output.dims[lead:]):
        have, size = own.dims[lead + dim], plan.layout.shape[lead + dim]
        whole = plan.output.shape[lead + dim]
        inner.append(part if native[dim] else find_complete_outputs(window, dim, have, size, whole) & part)
    interior = Box((*output.dims[:lead], *inner))

    def make_piece(part: Box) -> _Piece:
        read = window.compute_input_box(Box((Interval(0, 1), *part.dims[lead:]))).dims[1:]
        frame = plan.inputs.frame
        dims = [whole if native[dim] else read[dim] for dim, whole in enumerate(frame.dims[lead:])]
        return _Piece(index_part(frame, Box((*frame.dims[:lead], *dims))), index_part(output, part))

    if not own or not interior:
        return OverlapPlan(None, [])
    return OverlapPlan(make_piece(interior), [make_piece(border) for border in output.subtract(interior)])


def convolve_overlapped(
    tensor: SplitTensor, plan: WindowPlan, window: Window, compute: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return this rank's part of the output; `compute` convolves a frame, or a part of a frame."""
    group = tensor.group
    key = "overlap", plan.layout, plan.output, window
    if key not in group.plans:
        group.plans[key] = plan_overlap(plan, window, group.rank)
    pieces: OverlapPlan = group.plans[key]
    if pieces.interior is None:
        return compute(plan.inputs.build(tensor, scratch=True))
    frame = plan.inputs.begin(tensor)
    if group.overlap == "recompute":
        output = compute(frame)
    else:
        inner = compute(frame[pieces.interior.frame])
        last = inner.dim() in FORMATS and is_channels_last(inner)
        memory_format = FORMATS[inner.dim()] if last else torch.contiguous_format
        shape = plan.output.get_local_shape(group.rank)
        output = torch.empty(shape, dtype=inner.dtype, device=inner.device, memory_format=memory_format)
        output[pieces.interior.output].copy_(inner)
    plan.inputs.finish(tensor)
    for border in pieces.borders:
        output[border.output].copy_(compute(frame[border.frame]))
    return output
