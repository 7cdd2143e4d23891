"""Tests of views with merged dims, and of memory layouts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box
from tessera.transport.layout import MemoryLayout, index_box
from tessera.transport.packing import join_dims

parts = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)


@settings(deadline=None)
@given(parts, st.randoms())
def test_joined_dims_have_the_same_values(dims: list[tuple[int, int, int]], order: object) -> None:
    """Check views of two tensors with different margins around the views, and with the dims in any order."""
    shape = [size for size, _, _ in dims]
    target = torch.zeros([size + before for size, before, _ in dims])
    source = torch.rand([size + after for size, _, after in dims])
    target_view = target[tuple(slice(before, None) for _, before, _ in dims)]
    source_view = source[tuple(slice(size) for size in shape)]
    permutation = list(range(len(dims)))
    order.shuffle(permutation)  # type: ignore[attr-defined]
    a, b = join_dims(target_view.permute(permutation), source_view.permute(permutation))
    assert a.shape == b.shape
    assert a.numel() == target_view.numel()
    a.copy_(b)
    assert torch.equal(target_view, source_view)
    target_view.zero_()
    assert not target.any(), "something was written beside it"


def test_whole_rows_are_joined() -> None:
    assert [view.dim() for view in join_dims(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 5))] == [1, 1]
    assert join_dims(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))[0].shape == (1,)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("sizes", [(2, 5), (2, 5, 6), (2, 3, 5, 6)])
def test_a_layout_views_pixels(sizes: tuple[int, ...], channels_last: bool) -> None:
    layout, box = MemoryLayout(3, channels_last), Box.from_sizes(sizes)
    memory = torch.arange(float(layout.count_values(box)))
    tensor = layout.view_box(memory, box)
    assert tensor.shape == (2, 3, *sizes[1:])
    assert layout.to_memory_order(tensor).is_contiguous()
    assert tensor.is_contiguous(memory_format=layout.get_memory_format(tensor.dim())) or (
        len(sizes) == 2 and channels_last
    )
    part = Box.of(*((size - 2, size) for size in sizes))
    last_two = (slice(-2, None), slice(None), *[slice(-2, None)] * (len(sizes) - 1))
    assert torch.equal(tensor[index_box(box, part)], tensor[last_two])
    first, second = layout.split_strips(memory[: 2 * layout.count_values(part)], [part, part])
    assert first.shape == second.shape == layout.to_memory_order(tensor[index_box(box, part)]).shape
    assert first.is_contiguous()
