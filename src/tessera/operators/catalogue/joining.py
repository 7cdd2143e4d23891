"""Joining and splitting, and padding. Splits are views and move nothing; so is a join's gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tessera.operators.catalogue.layouts import Sizes, images, square
from tessera.operators.operator import Input, Operator, Shape, by_size
from tessera.operators.work import nothing_moved, outputs_moved


def _joining(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"backward_flops": 0.0, **rest}
    return Operator(name=name, category="joining", torch=torch, reference=reference, sizes=sizes, **settings)


_join = partial(_joining, backward_bytes=0.0)
_view = partial(_joining, moved=nothing_moved)
_copy = partial(_joining, moved=outputs_moved, backward_bytes=1.0)


def _three(shape: Callable[[int], Shape], *scales: int) -> Sizes:
    """Three tensors of one shape."""
    return by_size(lambda n: {name: Input(shape=shape(n)) for name in ("first", "second", "third")}, *scales)


_MATRICES = _three(lambda n: (n, n), 64, 512, 2048)
_VECTORS = _three(lambda n: (n,), 2**12, 2**18, 2**22)
_COLUMNS = by_size(
    lambda n: {"first": Input(shape=(n,)), "second": Input(shape=(n, 1)), "third": Input(shape=(n, 2))},
    2**10,
    2**18,
    2**22,
)
_FEATURES = by_size(
    lambda n, c, s: {"first": Input(shape=(n, c, s, s)), "second": Input(shape=(n, 2 * c, s, s))},
    (1, 8, 16),
    (8, 32, 56),
    (32, 64, 56),
)
_BLOCKS = by_size(
    lambda n: {"first": Input(shape=(n, n)), "second": Input(shape=(n, 2 * n)), "third": Input(shape=(2 * n, n))},
    16,
    256,
    1024,
)
_AXES = by_size(lambda n: {"first": Input(shape=(n,)), "second": Input(shape=(2 * n,))}, 64, 512, 2048)
_VOLUME = by_size(lambda n: {"data": Input(shape=(n, n, 16))}, 16, 256, 1024)
_CHOSEN = by_size(lambda n: {"data": Input(shape=(n,))}, 64, 512, 2048)
_BROADCAST = by_size(
    lambda n: {"first": Input(shape=(n, 1)), "second": Input(shape=(1, n)), "third": Input(shape=(n, n))},
    64,
    1024,
    4096,
)
_SIGNALS = by_size(lambda n, s: {"data": Input(shape=(n, 8, s))}, (2, 256), (16, 2**13), (64, 2**15))
_VOLUMES = by_size(lambda c, s: {"data": Input(shape=(1, c, s, s, s))}, (4, 10), (16, 40), (32, 80))

_LIST = "(first, second, third)"


def _padded(name: str, mode: str, numpy: str, sizes: Sizes, dims: int) -> Operator:
    """Padding by `padding` on both sides of each of the last dims."""
    return _copy(
        name,
        f"F.pad(data, (padding,) * {2 * dims}, mode='{mode}')",
        f"np.pad(data, [(0, 0)] * 2 + [(padding, padding)] * {dims}, mode='{numpy}')",
        sizes,
        attributes={"padding": 2},
    )


OPERATORS = (
    _join("cat", f"torch.cat({_LIST}, dim)", f"np.concatenate({_LIST}, dim)", _MATRICES, attributes={"dim": 0}),
    _join("cat_cols", f"torch.cat({_LIST}, dim)", f"np.concatenate({_LIST}, dim)", _MATRICES, attributes={"dim": 1}),
    _join(
        "cat_channels",
        "torch.cat((first, second), dim)",
        "np.concatenate((first, second), dim)",
        _FEATURES,
        attributes={"dim": 1},
    ),
    _join("cat_vectors", f"torch.cat({_LIST})", f"np.concatenate({_LIST})", _VECTORS),
    _join("stack", f"torch.stack({_LIST}, dim)", f"np.stack({_LIST}, dim)", _MATRICES, attributes={"dim": 0}),
    _join("stack_last", f"torch.stack({_LIST}, dim)", f"np.stack({_LIST}, dim)", _MATRICES, attributes={"dim": -1}),
    _join("hstack", f"torch.hstack({_LIST})", f"np.hstack({_LIST})", _MATRICES),
    _join("vstack", f"torch.vstack({_LIST})", f"np.vstack({_LIST})", _MATRICES, aliases=("row_stack",)),
    _join("dstack", f"torch.dstack({_LIST})", f"np.dstack({_LIST})", _MATRICES),
    _join("column_stack", f"torch.column_stack({_LIST})", f"np.column_stack({_LIST})", _COLUMNS),
    _join("block_diag", f"torch.block_diag(*{_LIST})", f"scipy.linalg.block_diag(*{_LIST})", _BLOCKS),
    _join(
        "cartesian_prod",
        "torch.cartesian_prod(first, second)",
        "ref.cartesian_prod(first, second)",
        _AXES,
        backward_bytes=1.0,
    ),
    _join("combinations", "torch.combinations(data)", "ref.combinations(data)", _CHOSEN, backward_bytes=1.0),
    _view(
        "split",
        "torch.split(data, split_size)",
        "np.split(data, range(split_size, len(data), split_size))",
        square(),
        attributes=lambda shapes: {"split_size": -(-shapes["data"][0] // 8)},
    ),
    _view(
        "split_sizes",
        "torch.split(data, sections)",
        "np.split(data, np.cumsum(sections)[:-1])",
        square(),
        attributes=lambda shapes: {
            "sections": [1, shapes["data"][0] // 4, shapes["data"][0] - shapes["data"][0] // 4 - 1]
        },
    ),
    _view(
        "chunk",
        "torch.chunk(data, chunks)",
        "np.split(data, range(-(-len(data) // chunks), len(data), -(-len(data) // chunks)))",
        square(),
        attributes={"chunks": 4},
    ),
    _view(
        "tensor_split",
        "torch.tensor_split(data, sections)",
        "np.array_split(data, sections)",
        square(),
        attributes={"sections": 3},
    ),
    _view(
        "hsplit",
        "torch.hsplit(data, sections)",
        "np.hsplit(data, sections)",
        square(),
        attributes={"sections": [8, 32]},
    ),
    _view(
        "vsplit",
        "torch.vsplit(data, sections)",
        "np.vsplit(data, sections)",
        square(),
        attributes={"sections": [8, 32]},
    ),
    _view(
        "dsplit", "torch.dsplit(data, sections)", "np.dsplit(data, sections)", _VOLUME, attributes={"sections": [4, 8]}
    ),
    _view("unbind", "torch.unbind(data, dim)", "tuple(np.moveaxis(data, dim, 0))", _VOLUME, attributes={"dim": -1}),
    _view(
        "meshgrid",
        "torch.meshgrid(first, second, indexing='ij')",
        "np.meshgrid(first, second, indexing='ij', copy=False)",
        _AXES,
    ),
    _view("broadcast_tensors", f"torch.broadcast_tensors(*{_LIST})", f"np.broadcast_arrays(*{_LIST})", _BROADCAST),
    _padded("pad_constant", "constant", "constant", images(), 2),
    _padded("pad_reflect", "reflect", "reflect", images(), 2),
    _padded("pad_replicate", "replicate", "edge", images(), 2),
    _padded("pad_circular", "circular", "wrap", images(), 2),
    _padded("pad_constant_1d", "constant", "constant", _SIGNALS, 1),
    _padded("pad_reflect_1d", "reflect", "reflect", _SIGNALS, 1),
    _padded("pad_replicate_3d", "replicate", "edge", _VOLUMES, 3),
    _padded("pad_reflect_3d", "reflect", "reflect", _VOLUMES, 3),
)
