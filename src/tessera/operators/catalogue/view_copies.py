"""Views made as copies: torch's operators for programs that may not share memory, each beside the view it copies."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.layouts import Sizes, square
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import outputs_moved


def _copy(category: str, name: str, torch: str, reference: str, sizes: Sizes | None = None, **rest: Any) -> Operator:
    return Operator(
        name=f"{name}_copy",
        category=category,
        torch=torch,
        reference=reference,
        sizes=sizes or square(),
        moved=outputs_moved,
        backward_flops=0.0,
        backward_bytes=1.0,
        **rest,
    )


_SINGLE = by_size(lambda n: {"data": Input(shape=(n, 1, n))}, 64, 1024, 4096)
_COLUMN = by_size(lambda n: {"data": Input(shape=(n, 1))}, 64, 1024, 4096)
_THREE = by_size(lambda n: {"data": Input(shape=(n, n, 16))}, 16, 256, 1024)
_SHORT = by_size(lambda n: {"data": Input(shape=(n, n))}, 32, 256, 1024)

OPERATORS = (
    _copy("shaping", "view", "torch.view_copy(data, (-1,))", "np.array(np.reshape(data, (-1,)))"),
    _copy("shaping", "t", "torch.t_copy(data)", "np.array(np.transpose(data))"),
    _copy("shaping", "transpose", "torch.transpose_copy(data, 0, 1)", "np.array(np.swapaxes(data, 0, 1))"),
    _copy(
        "shaping", "permute", "torch.permute_copy(data, (2, 0, 1))", "np.array(np.transpose(data, (2, 0, 1)))", _THREE
    ),
    _copy("shaping", "squeeze", "torch.squeeze_copy(data)", "np.array(np.squeeze(data))", _SINGLE),
    _copy("shaping", "unsqueeze", "torch.unsqueeze_copy(data, 1)", "np.array(np.expand_dims(data, 1))"),
    _copy(
        "shaping",
        "expand",
        "torch.expand_copy(data, size)",
        "np.array(np.broadcast_to(data, size))",
        _COLUMN,
        attributes=lambda shapes: {"size": (max(shapes["data"]),) * 2},
    ),
    _copy(
        "shaping",
        "unfold",
        "torch.unfold_copy(data, 1, size, 1)",
        "np.array(np.lib.stride_tricks.sliding_window_view(data, size, 1))",
        _SHORT,
        attributes={"size": 8},
    ),
    _copy(
        "indexing", "select", "torch.select_copy(data, 1, index)", "np.array(data[:, index])", attributes={"index": 3}
    ),
    _copy("indexing", "slice", "torch.slice_copy(data, 1, 1, step=2)", "np.array(data[:, 1::2])"),
    _copy("indexing", "diagonal", "torch.diagonal_copy(data)", "np.array(np.diagonal(data))"),
    _copy(
        "joining",
        "split",
        "torch.split_copy(data, split_size)",
        "[np.array(part) for part in np.split(data, range(split_size, len(data), split_size))]",
        attributes=lambda shapes: {"split_size": -(-shapes["data"][0] // 8)},
    ),
    _copy(
        "joining",
        "unbind",
        "torch.unbind_copy(data, -1)",
        "[np.array(data[..., k]) for k in range(data.shape[-1])]",
        _THREE,
    ),
)
