"""Joining, splitting and padding. Splits, and the gradients of joins, are views and move no bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tessera.operators.catalogue.families import (
    MATRIX_SIDES,
    Sizes,
    define_family,
    make_images,
    make_square,
    write_both,
)
from tessera.operators.operator import Input, Operator, Shape, count_copy_bytes, count_no_bytes, make_sizes

_define_joining = define_family("joining", backward_flops=0.0)
_define_join = partial(_define_joining, backward_bytes=0.0)
_define_view = partial(_define_joining, moved=count_no_bytes)
_define_copy = partial(_define_joining, moved=count_copy_bytes, backward_bytes=1.0)


def _make_three(shape: Callable[[int], Shape], *scales: int) -> Sizes:
    """Make three tensors of the same shape."""
    return make_sizes(lambda n: {name: Input(shape(n)) for name in ("first", "second", "third")}, *scales)


_MATRIX_INPUTS = _make_three(lambda n: (n, n), 64, 512, 2048)
_VECTOR_INPUTS = _make_three(lambda n: (n,), 2**12, 2**18, 2**22)
_COLUMN_INPUTS = make_sizes(
    lambda n: {"first": Input((n,)), "second": Input((n, 1)), "third": Input((n, 2))}, 2**10, 2**18, 2**22
)
_FEATURE_MAP_INPUTS = make_sizes(
    lambda n, c, s: {"first": Input((n, c, s, s)), "second": Input((n, 2 * c, s, s))},
    (1, 8, 16),
    (8, 32, 56),
    (32, 64, 56),
)
_BLOCK_INPUTS = make_sizes(
    lambda n: {"first": Input((n, n)), "second": Input((n, 2 * n)), "third": Input((2 * n, n))}, 16, 256, 1024
)
_AXIS_INPUTS = make_sizes(lambda n: {"first": Input((n,)), "second": Input((2 * n,))}, 64, 512, 2048)
_THREE_DIM_INPUTS = make_sizes(lambda n: {"data": Input((n, n, 16))}, 16, 256, 1024)
_COMBINATION_INPUTS = make_sizes(lambda n: {"data": Input((n,))}, 64, 512, 2048)
_BROADCAST_INPUTS = make_sizes(
    lambda n: {"first": Input((n, 1)), "second": Input((1, n)), "third": Input((n, n))}, *MATRIX_SIDES
)
_SIGNAL_INPUTS = make_sizes(lambda n, s: {"data": Input((n, 8, s))}, (2, 256), (16, 2**13), (64, 2**15))
_VOLUME_INPUTS = make_sizes(lambda c, s: {"data": Input((1, c, s, s, s))}, (4, 10), (16, 40), (32, 80))

_INPUT_LIST = "(first, second, third)"


def _define_pad(name: str, mode: str, numpy: str, sizes: Sizes, dims: int) -> Operator:
    """Define a padding by `padding` elements on both sides of each of the last `dims` dims."""
    return _define_copy(
        name,
        f"F.pad(data, (padding,) * {2 * dims}, mode='{mode}')",
        f"np.pad(data, [(0, 0)] * 2 + [(padding, padding)] * {dims}, mode='{numpy}')",
        sizes,
        attributes={"padding": 2},
    )


OPERATORS = (
    *(
        _define_join(name, f"torch.cat({parts}, dim)", f"np.concatenate({parts}, dim)", sizes, attributes={"dim": dim})
        for name, parts, sizes, dim in (
            ("cat", _INPUT_LIST, _MATRIX_INPUTS, 0),
            ("cat_cols", _INPUT_LIST, _MATRIX_INPUTS, 1),
            ("cat_channels", "(first, second)", _FEATURE_MAP_INPUTS, 1),
        )
    ),
    _define_join("cat_vectors", f"torch.cat({_INPUT_LIST})", f"np.concatenate({_INPUT_LIST})", _VECTOR_INPUTS),
    _define_join("stack", *write_both(f"stack({_INPUT_LIST}, dim)"), _MATRIX_INPUTS, attributes={"dim": 0}),
    _define_join("stack_last", *write_both(f"stack({_INPUT_LIST}, dim)"), _MATRIX_INPUTS, attributes={"dim": -1}),
    _define_join("hstack", *write_both(f"hstack({_INPUT_LIST})"), _MATRIX_INPUTS),
    _define_join("vstack", *write_both(f"vstack({_INPUT_LIST})"), _MATRIX_INPUTS, aliases=("row_stack",)),
    _define_join("dstack", *write_both(f"dstack({_INPUT_LIST})"), _MATRIX_INPUTS),
    _define_join("column_stack", *write_both(f"column_stack({_INPUT_LIST})"), _COLUMN_INPUTS),
    _define_join(
        "block_diag", f"torch.block_diag(*{_INPUT_LIST})", f"scipy.linalg.block_diag(*{_INPUT_LIST})", _BLOCK_INPUTS
    ),
    _define_join("cartesian_prod", reference="ref.cartesian_prod", sizes=_AXIS_INPUTS, backward_bytes=1.0),
    _define_join("combinations", reference="ref.combinations", sizes=_COMBINATION_INPUTS, backward_bytes=1.0),
    _define_view(
        "split",
        reference="np.split(data, range(split_size, len(data), split_size))",
        sizes=make_square(),
        attributes=lambda shapes: {"split_size": -(-shapes["data"][0] // 8)},
    ),
    _define_view(
        "split_sizes",
        "torch.split",
        "np.split(data, np.cumsum(sections)[:-1])",
        make_square(),
        attributes=lambda shapes: {
            "sections": [1, shapes["data"][0] // 4, shapes["data"][0] - shapes["data"][0] // 4 - 1]
        },
    ),
    _define_view(
        "chunk",
        reference="np.split(data, range(-(-len(data) // chunks), len(data), -(-len(data) // chunks)))",
        sizes=make_square(),
        attributes={"chunks": 4},
    ),
    _define_view("tensor_split", reference="np.array_split", sizes=make_square(), attributes={"sections": 3}),
    _define_view("hsplit", sizes=make_square(), attributes={"sections": [8, 32]}),
    _define_view("vsplit", sizes=make_square(), attributes={"sections": [8, 32]}),
    _define_view("dsplit", sizes=_THREE_DIM_INPUTS, attributes={"sections": [4, 8]}),
    _define_view(
        "unbind", reference="tuple(np.moveaxis(data, dim, 0))", sizes=_THREE_DIM_INPUTS, attributes={"dim": -1}
    ),
    _define_view(
        "meshgrid",
        "torch.meshgrid(first, second, indexing='ij')",
        "np.meshgrid(first, second, indexing='ij', copy=False)",
        _AXIS_INPUTS,
    ),
    _define_view(
        "broadcast_tensors",
        f"torch.broadcast_tensors(*{_INPUT_LIST})",
        f"np.broadcast_arrays(*{_INPUT_LIST})",
        _BROADCAST_INPUTS,
    ),
    _define_pad("pad_constant", "constant", "constant", make_images(), 2),
    _define_pad("pad_reflect", "reflect", "reflect", make_images(), 2),
    _define_pad("pad_replicate", "replicate", "edge", make_images(), 2),
    _define_pad("pad_circular", "circular", "wrap", make_images(), 2),
    _define_pad("pad_constant_1d", "constant", "constant", _SIGNAL_INPUTS, 1),
    _define_pad("pad_reflect_1d", "reflect", "reflect", _SIGNAL_INPUTS, 1),
    _define_pad("pad_replicate_3d", "replicate", "edge", _VOLUME_INPUTS, 3),
    _define_pad("pad_reflect_3d", "reflect", "reflect", _VOLUME_INPUTS, 3),
)
