"""Attention over pixels in a ring and gathered: the same as plain torch's, with all arguments, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.memory import measure_resident_growth
from tessera.spatial.tensor.boundary import join_parts, split_whole
from tessera.spatial.tensor.layout import split_dims_evenly
from tessera.spatial.tensor.split_tensor import SplitGroup
from tessera.transport.process_groups import get_world_transport
from tests.spatial.tensor.agreement import MeshCounts, check_close, run_on_ranks

torch.set_num_threads(1)
MANY_KEYS = 1 << 17
SHAPE, HEADS = (2, 12, 6, 5), 3  # samples, channels and pixels of the image


def to_heads(x: Tensor, heads: int = HEADS) -> Tensor:
    return x.flatten(2).unflatten(1, (heads, -1)).transpose(2, 3).contiguous()  # as the fused kernel requires


def make_mask(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def attend_with_masked_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.zeros(30, 30, dtype=torch.float64)
    mask[7] = -inf  # this query attends to nothing
    mask[3, :18] = -inf
    mask[11, 12:] = -inf
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attend_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) * 0.3).softmax(-1) @ v


ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": F.scaled_dot_product_attention,
    "scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.7, dropout_p=0.0),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=make_mask(30, 30)),
    "mask by head": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=make_mask(2, 3, 30, 30)),
    "mask of rows": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=make_mask(1, 1, 30, 1)),
    "mask of columns": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=make_mask(1, 30)),
    "boolean mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=make_mask(30, 30) > -0.5),
    "masked queries": attend_with_masked_queries,
    "few heads": lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
    "by hand": attend_by_hand,
    "other channels": lambda q, k, v: F.scaled_dot_product_attention(q, k, v[..., :2]),
    "few keys": lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :, :7], v[:, :, :7]),
    "few queries": lambda q, k, v: F.scaled_dot_product_attention(q[:, :, :7], k, v, is_causal=True),
}


def run_attention(attend: Callable[..., Tensor], image: Tensor, grad: Tensor | None) -> tuple[Tensor, Tensor]:
    output = attend(to_heads(image), to_heads(image.sin()), to_heads(image * image))
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape) if grad is None else grad
    (output * weight).sum().backward()
    return output, weight


@pytest.mark.parametrize("limit", [0, 1 << 26], ids=["ring", "gather"])
@pytest.mark.parametrize("mesh", [(1, 2), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_that_of_torch(name: str, mesh: MeshCounts, limit: int) -> None:
    attend, image = ATTENTIONS[name], torch.randn(SHAPE, dtype=torch.float64)
    leaf = image.clone().requires_grad_()
    expected, _ = run_attention(attend, leaf, None)

    def run(group: SplitGroup) -> tuple[Tensor, Tensor | None]:
        group.max_gather_bytes = limit
        own = image.clone().requires_grad_()
        output, _ = run_attention(attend, split_whole(own, group.get_tiles(SHAPE, 2), group), None)
        return join_parts(output).detach(), own.grad

    for output, grad in run_on_ranks(mesh, run):
        check_close(output, expected.detach())
        check_close(grad, leaf.grad)


def measure_growth(worker: Worker, limit: int) -> int:
    """Rank function: return the bytes by which attention of few queries to many keys increases the peak memory."""
    worker.connect()
    group = SplitGroup(get_world_transport(2), (2,), max_gather_bytes=limit)
    shape = 1, 1, MANY_KEYS, 64
    keys = split_dims_evenly(shape, (2,), (2,))
    part = torch.randn(keys.get_local_shape(group.rank))
    tokens = split_whole(part, keys, group, is_part=True)
    query = split_whole(torch.randn(1, 1, 8, 64), split_dims_evenly((1, 1, 8, 64), (2,), (2,)), group)
    F.scaled_dot_product_attention(query, query, query)  # libraries are loaded before memory is measured
    return measure_resident_growth(lambda: F.scaled_dot_product_attention(query, tokens, tokens)) or 0


def test_ring_needs_less_memory_than_a_gather() -> None:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=120)) as workers:
        ring, gathered = (max(workers.run(f"{__name__}:measure_growth", limit)) for limit in (0, 1 << 40))
    assert ring < 0.8 * gathered


def test_ring_is_used() -> None:
    """Without this, the tests above would pass if keys were always gathered."""
    image = torch.randn(SHAPE, dtype=torch.float64)

    def run(group: SplitGroup) -> tuple[bool, bool]:
        tile = split_whole(image, group.get_tiles(SHAPE, 2), group)
        used = []
        for group.max_gather_bytes in (1 << 26, 0):
            F.scaled_dot_product_attention(*[to_heads(tile)] * 3)
            used.append(bool(group._current.rings))
        return used[0], used[1]

    assert run_on_ranks((2, 1), run) == [(False, True)] * 2
