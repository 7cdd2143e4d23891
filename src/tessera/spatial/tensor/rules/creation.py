"""New tensors: like an existing tensor, or random. Random numbers equal the unsplit network's for the same seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tessera.spatial.tensor.layout import make_whole
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitTensor,
    get_local,
    rule,
    slice_whole,
    write,
)

aten = torch.ops.aten


@rule(aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default)
def make_like(call: Call) -> Any:
    tensor = call.args[0]
    return call.wrap(call.func(get_local(tensor), *call.args[1:], **call.kwargs), tensor.layout_on_ranks)


@rule(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default, aten.new_full.default)
def make_new(call: Call) -> Any:
    """Return a tensor of any shape: as tiles if it has the dims of an image on tiles, otherwise whole on every rank."""
    tensor, shape = call.args[0], tuple(call.args[1])
    if shape == tuple(tensor.shape):
        local = get_local(tensor)
        return call.wrap(call.func(local, local.shape, *call.args[2:], **call.kwargs), tensor.layout_on_ranks)
    layout, group = tensor.layout_on_ranks, call.group
    is_tiles = layout.is_plain and layout.is_exclusive and min(layout.split_dims, default=0) > 1
    if is_tiles and len(shape) == tensor.dim() and min(shape[2:]) >= 2 * group.ranks:  # such as a padded image
        tiles = group.get_tiles(shape, len(shape) - 2)
        part = call.func(get_local(tensor), tiles.get_local_shape(group.rank), *call.args[2:], **call.kwargs)
        return call.wrap(part, tiles)
    plain = call.func(get_local(tensor), shape, *call.args[2:], **call.kwargs)
    return call.wrap(plain, make_whole(shape, call.group.ranks))


@rule(aten.new_empty_strided.default)
def make_strided(call: Call) -> Any:
    tensor, shape = call.args[0], tuple(call.args[1])
    if shape == tuple(tensor.shape):
        return call.wrap(torch.empty_like(get_local(tensor), dtype=call.kwargs.get("dtype")), tensor.layout_on_ranks)
    return call.wrap(call.func(get_local(tensor), *call.args[1:], **call.kwargs), make_whole(shape, call.group.ranks))


def _draw_like(tensor: Tensor) -> Tensor:
    """Return an empty plain tensor with the shape, dtype and memory order of a split tensor."""
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


@rule(
    aten.bernoulli_.float,
    aten.normal_.default,
    aten.uniform_.default,
    aten.exponential_.default,
    aten.random_.default,
    aten.random_.to,
    aten.cauchy_.default,
    aten.log_normal_.default,
    aten.geometric_.default,
)
def draw_in_place(call: Call) -> Any:
    """Draw the whole tensor on every rank, as the unsplit network does, and keep this rank's part."""
    tensor = call.args[0]
    whole = _draw_like(tensor)
    call.func(whole, *call.args[1:], **call.kwargs)
    write(tensor, whole)
    return tensor


@rule(aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype)
def draw_like(call: Call) -> Any:
    tensor = call.args[0]
    whole = call.func(_draw_like(tensor), *call.args[1:], **call.kwargs)
    layout = tensor.layout_on_ranks
    return call.wrap(slice_whole(whole, layout, call.group.rank).clone(), layout)


@rule(aten.native_dropout.default)
def dropout(call: Call) -> Any:
    tensor, probability, train = call.args
    if not train:
        return NO_RULE
    layout = tensor.layout_on_ranks
    _, mask = torch.native_dropout(torch.ones_like(_draw_like(tensor)), probability, True)
    part = slice_whole(mask, layout, call.group.rank).clone()
    scale = 0.0 if probability == 1 else 1 / (1 - probability)
    return call.wrap(get_local(tensor) * part * scale, layout), call.wrap(part, layout)


@rule(aten._local_scalar_dense.default)
def to_scalar(call: Call) -> Any:
    from tessera.spatial.tensor.split_tensor import gather

    return call.func(gather(call.args[0]))


@rule(aten.is_same_size.default)
def is_same_size(call: Call) -> Any:
    return tuple(call.args[0].shape) == tuple(call.args[1].shape)


__all__ = ["SplitTensor"]
