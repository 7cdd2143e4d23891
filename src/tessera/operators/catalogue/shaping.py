"""Changes of shape and order: views, which move no bytes, and copies, which read and write every value."""

from __future__ import annotations

from functools import partial
from typing import Any

from tessera.operators.catalogue.families import (
    MATRIX_SIDES,
    NO_GRADIENT,
    WIDE_DTYPES,
    Sizes,
    define_family,
    define_operator,
    make_images,
    write_both,
)
from tessera.operators.draws import integers
from tessera.operators.operator import Input, Operator, count_copy_bytes, count_no_bytes, make_sizes

_define_shaping = define_family("shaping", backward_flops=0.0, backward_bytes=1.0)
_define_view = partial(_define_shaping, moved=count_no_bytes)
_define_copy = partial(_define_shaping, moved=count_copy_bytes)

_THREE_DIM_INPUTS = make_sizes(lambda n: {"data": Input((n, n, 16))}, 16, 256, 1024)
_SINGLETON_DIM_INPUTS = make_sizes(lambda n: {"data": Input((n, 1, n, 1))}, *MATRIX_SIDES)
_ROW_INPUTS = make_sizes(lambda n: {"data": Input((1, n))}, *MATRIX_SIDES)
_COLUMN_INPUTS = make_sizes(lambda n: {"data": Input((n, 1))}, *MATRIX_SIDES)
_TILE_INPUTS = make_sizes(lambda n: {"data": Input((n, n, 16))}, 8, 128, 512)
_VECTOR_INPUTS = make_sizes(lambda n: {"data": Input((n,))}, 2**12, 2**20, 2**24)
_DIAGONAL_INPUTS = make_sizes(lambda n: {"data": Input((n,))}, *MATRIX_SIDES)
_BATCH_DIAGONAL_INPUTS = make_sizes(lambda n: {"data": Input((n, 64))}, 4, 256, 2048)
_SEQUENCE_INPUTS = make_sizes(lambda b, s: {"data": Input((b, s, 12, 64))}, (1, 8), (8, 128), (32, 512))
_PAIR_INPUTS = make_sizes(lambda n: {"data": Input((n, n, 2))}, 64, 1024, 2048)
_COMPLEX_INPUTS = make_sizes(lambda n: {"data": Input((n, n), kind="complex")}, 64, 1024, 2048)
_REPEAT_INPUTS = make_sizes(
    lambda n: {"data": Input((n, 16)), "repeats": Input((n,), integers(4), "int64")}, 256, 2**15, 2**19
)
_IMAGE_INPUTS = make_sizes(lambda n, c, s: {"data": Input((n, c, s, s))}, (1, 8, 16), (1, 32, 56), (8, 64, 56))
_PATCH_INPUTS = make_sizes(lambda n, c, s: {"data": Input((n, 9 * c, s * s))}, (1, 8, 16), (1, 32, 56), (8, 64, 56))
_WINDOW_ATTRIBUTES = {"kernel_size": 3, "padding": 1, "stride": 1}


def _get_square_size(shapes: Any) -> dict[str, Any]:
    return {"size": (max(shapes["data"]),) * 2}


def _get_halves(shapes: Any) -> dict[str, Any]:
    """Return the attribute `sizes` that splits an even first dim n into (2, n / 2)."""
    return {"sizes": (2, shapes["data"][0] // 2)}


def _get_strided_size(shapes: Any) -> dict[str, Any]:
    rows, columns = shapes["data"]
    return {"size": (rows // 2, columns // 2), "stride": (2 * columns, 2)}


def _get_image_size(shapes: Any) -> dict[str, Any]:
    side = round(shapes["data"][2] ** 0.5)
    return {"output_size": (side, side), **_WINDOW_ATTRIBUTES}


_SHAPING_OPERATORS = (
    # views
    _define_view("reshape", *write_both("reshape(data, (-1,))")),
    _define_view("view", "data.view(-1)", "data.reshape(-1)"),
    _define_view("ravel", reference="np.reshape(data, (-1,))"),
    _define_view("flatten", "torch.flatten(data, 1)", "data.reshape(data.shape[0], -1)", make_images()),
    _define_view("unflatten", "torch.unflatten(data, 0, sizes)", "data.reshape(*sizes, -1)", attributes=_get_halves),
    _define_view("transpose", "torch.transpose(data, 0, 1)", "np.swapaxes(data, 0, 1)"),
    _define_view("swapaxes", *write_both("swapaxes(data, 0, 1)"), aliases=("swapdims",)),
    _define_view("t", reference="np.transpose"),
    _define_view("permute", reference="np.transpose", sizes=_THREE_DIM_INPUTS, attributes={"dims": (2, 0, 1)}),
    _define_view(
        "movedim", "torch.movedim(data, 0, -1)", "np.moveaxis(data, 0, -1)", _THREE_DIM_INPUTS, aliases=("moveaxis",)
    ),
    _define_view("adjoint", reference="np.conj(data.T)", sizes=_COMPLEX_INPUTS, **WIDE_DTYPES),
    _define_view("squeeze", sizes=_SINGLETON_DIM_INPUTS),
    _define_view("squeeze_dim", "torch.squeeze", "np.squeeze", _SINGLETON_DIM_INPUTS, attributes={"dim": 1}),
    _define_view("unsqueeze", reference="np.expand_dims", attributes={"dim": 1}),
    _define_view("atleast_1d", sizes=_VECTOR_INPUTS),
    _define_view("atleast_2d", sizes=_VECTOR_INPUTS),
    _define_view("atleast_3d"),
    _define_view("expand", "data.expand(size)", "np.broadcast_to", _COLUMN_INPUTS, attributes=_get_square_size),
    _define_view("broadcast_to", sizes=_ROW_INPUTS, attributes=_get_square_size),
    _define_view("as_strided", reference="data[: 2 * size[0] : 2, : 2 * size[1] : 2]", attributes=_get_strided_size),
    _define_view(
        "sliding_windows",
        "data.unfold(1, size, 1)",
        "np.lib.stride_tricks.sliding_window_view(data, size, 1)",
        make_sizes(lambda n: {"data": Input((n, n))}, 32, 256, 1024),
        attributes={"size": 8},
        backward_bytes=0.0,
    ),
    _define_view("view_as_real", reference="ref.view_as_real", sizes=_COMPLEX_INPUTS, **WIDE_DTYPES),
    _define_view("view_as_complex", reference="ref.view_as_complex", sizes=_PAIR_INPUTS, **WIDE_DTYPES),
    # copies that reorder elements
    _define_copy("transpose_contiguous", "data.t().contiguous()", "np.ascontiguousarray(data.T)"),
    _define_copy(
        "permute_contiguous",
        "data.permute(0, 2, 3, 1).contiguous()",
        "np.ascontiguousarray(np.transpose(data, (0, 2, 3, 1)))",
        make_images(),
    ),
    _define_copy(
        "swap_heads",
        "data.transpose(1, 2).contiguous()",
        "np.ascontiguousarray(np.swapaxes(data, 1, 2))",
        _SEQUENCE_INPUTS,
    ),
    _define_copy("flip", reference="np.flip(data, dims).copy()", attributes={"dims": (0, 1)}),
    _define_copy("fliplr", reference="np.fliplr(data).copy()"),
    _define_copy("flipud", reference="np.flipud(data).copy()"),
    _define_copy("rot90", reference="np.rot90(data, k).copy()", attributes={"k": 1}),
    _define_copy("roll", attributes={"shifts": (3, 5), "dims": (0, 1)}),
    _define_copy("roll_flat", "torch.roll", "np.roll", attributes={"shifts": 100}),
    _define_copy("repeat", "data.repeat(repeats)", "np.tile", _TILE_INPUTS, attributes={"repeats": (2, 1, 2)}),
    _define_copy("tile", sizes=_TILE_INPUTS, attributes={"dims": (2, 2)}),
    _define_copy(
        "repeat_interleave",
        "torch.repeat_interleave(data, repeats, dim=1)",
        "np.repeat(data, repeats, axis=1)",
        _THREE_DIM_INPUTS,
        attributes={"repeats": 2},
    ),
    _define_copy(
        "repeat_interleave_counts",
        "torch.repeat_interleave(data, repeats, dim=0)",
        "np.repeat(data, repeats, axis=0)",
        _REPEAT_INPUTS,
    ),
    _define_copy(
        "narrow_copy",
        "torch.narrow_copy(data, 1, start, length)",
        "data[:, start : start + length].copy()",
        attributes=lambda shapes: {"start": 1, "length": shapes["data"][1] // 2},
    ),
    *(
        _define_copy(
            name, f"F.{name}(data, {key})", f"ref.{name}(data, {key})", make_images(), attributes={key: number}
        )
        for name, key, number in (
            ("pixel_shuffle", "factor", 2),
            ("pixel_unshuffle", "factor", 2),
            ("channel_shuffle", "groups", 4),
        )
    ),
    _define_copy(
        "unfold",
        "F.unfold(data, kernel_size, padding=padding, stride=stride)",
        "ref.unfold",
        _IMAGE_INPUTS,
        attributes=_WINDOW_ATTRIBUTES,
    ),
    _define_shaping(
        "fold",
        "F.fold(data, output_size, kernel_size, padding=padding, stride=stride)",
        "ref.fold",
        _PATCH_INPUTS,
        attributes=_get_image_size,
        flops=9,
    ),
    # triangles and diagonals
    _define_copy("tril"),
    _define_copy("triu"),
    _define_copy("inplace_tril", "data.tril_()", "ref.triangle", aliases=("tril_",), **NO_GRADIENT),
    _define_copy("inplace_triu", "data.triu_()", "ref.triangle(data, upper=True)", aliases=("triu_",), **NO_GRADIENT),
    _define_copy("diag"),
    _define_shaping("diag_matrix", "torch.diag", "np.diag", _DIAGONAL_INPUTS),
    _define_shaping("diagflat", sizes=_DIAGONAL_INPUTS),
    _define_shaping("diag_embed", reference="ref.diag_embed", sizes=_BATCH_DIAGONAL_INPUTS),
)


# `*_copy` operators: torch's variants of views that return a copy


def _define_view_copy(
    category: str, view: str, arguments: str, reference: str, sizes: Sizes | None = None, **rest: Any
) -> Operator:
    """Define torch's `*_copy` variant of a view operator, in the category of the view."""
    torch = f"torch.{view}_copy({', '.join(filter(None, ['data', arguments]))})"
    reference = reference if category == "joining" else f"np.array({reference})"
    costs: dict[str, Any] = {"moved": count_copy_bytes, "backward_flops": 0.0, "backward_bytes": 1.0}
    return define_operator(category, f"{view}_copy", torch, reference, sizes, **costs, **rest)


_SINGLETON_MIDDLE_INPUTS = make_sizes(lambda n: {"data": Input((n, 1, n))}, *MATRIX_SIDES)
_SMALL_MATRIX_INPUTS = make_sizes(lambda n: {"data": Input((n, n))}, 32, 256, 1024)

_VIEW_COPY_OPERATORS = (
    _define_view_copy("shaping", "view", "(-1,)", "np.reshape(data, (-1,))"),
    _define_view_copy("shaping", "t", "", "np.transpose(data)"),
    _define_view_copy("shaping", "transpose", "0, 1", "np.swapaxes(data, 0, 1)"),
    _define_view_copy("shaping", "permute", "(2, 0, 1)", "np.transpose(data, (2, 0, 1))", _THREE_DIM_INPUTS),
    _define_view_copy("shaping", "squeeze", "", "np.squeeze(data)", _SINGLETON_MIDDLE_INPUTS),
    _define_view_copy("shaping", "unsqueeze", "1", "np.expand_dims(data, 1)"),
    _define_view_copy(
        "shaping",
        "expand",
        "size",
        "np.broadcast_to(data, size)",
        _COLUMN_INPUTS,
        attributes=lambda shapes: {"size": (max(shapes["data"]),) * 2},
    ),
    _define_view_copy(
        "shaping",
        "unfold",
        "1, size, 1",
        "np.lib.stride_tricks.sliding_window_view(data, size, 1)",
        _SMALL_MATRIX_INPUTS,
        attributes={"size": 8},
    ),
    _define_view_copy("indexing", "select", "1, index", "data[:, index]", attributes={"index": 3}),
    _define_view_copy("indexing", "slice", "1, 1, step=2", "data[:, 1::2]"),
    _define_view_copy("indexing", "diagonal", "", "np.diagonal(data)"),
    _define_view_copy(
        "joining",
        "split",
        "split_size",
        "[np.array(part) for part in np.split(data, range(split_size, len(data), split_size))]",
        attributes=lambda shapes: {"split_size": -(-shapes["data"][0] // 8)},
    ),
    _define_view_copy(
        "joining", "unbind", "-1", "[np.array(data[..., k]) for k in range(data.shape[-1])]", _THREE_DIM_INPUTS
    ),
)

OPERATORS = (*_SHAPING_OPERATORS, *_VIEW_COPY_OPERATORS)
