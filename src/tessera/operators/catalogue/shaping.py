"""Changes of shape and order: views, which move nothing, and copies, which move everything and compute nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, images, square
from tessera.operators.draws import integers
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import nothing_moved, outputs_moved, per_output


def _shaping(name: str, torch: str, reference: str, sizes: Sizes | None = None, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"backward_flops": 0.0, "backward_bytes": 1.0, **rest}
    return Operator(
        name=name, category="shaping", torch=torch, reference=reference, sizes=sizes or square(), **settings
    )


_view = partial(_shaping, moved=nothing_moved)
_copy = partial(_shaping, moved=outputs_moved)

_THREE = by_size(lambda n: {"data": Input(shape=(n, n, 16))}, 16, 256, 1024)
_SINGLE = by_size(lambda n: {"data": Input(shape=(n, 1, n, 1))}, 64, 1024, 4096)
_ROW = by_size(lambda n: {"data": Input(shape=(1, n))}, 64, 1024, 4096)
_COLUMN = by_size(lambda n: {"data": Input(shape=(n, 1))}, 64, 1024, 4096)
_TILED = by_size(lambda n: {"data": Input(shape=(n, n, 16))}, 8, 128, 512)
_VECTOR = by_size(lambda n: {"data": Input(shape=(n,))}, 2**12, 2**20, 2**24)
_DIAGONAL = by_size(lambda n: {"data": Input(shape=(n,))}, 64, 1024, 4096)
_DIAGONALS = by_size(lambda n: {"data": Input(shape=(n, 64))}, 4, 256, 2048)
_SEQUENCE = by_size(lambda b, s: {"data": Input(shape=(b, s, 12, 64))}, (1, 8), (8, 128), (32, 512))
_PAIRS = by_size(lambda n: {"data": Input(shape=(n, n, 2))}, 64, 1024, 2048)
_COMPLEX = by_size(lambda n: {"data": Input(shape=(n, n), kind="complex")}, 64, 1024, 2048)
_COUNTED = by_size(
    lambda n: {"data": Input(shape=(n, 16)), "repeats": Input(shape=(n,), kind="int64", draw=integers(4))},
    256,
    2**15,
    2**19,
)
_PATCHED = by_size(lambda n, c, s: {"data": Input(shape=(n, c, s, s))}, (1, 8, 16), (1, 32, 56), (8, 64, 56))
_PATCHES = by_size(lambda n, c, s: {"data": Input(shape=(n, 9 * c, s * s))}, (1, 8, 16), (1, 32, 56), (8, 64, 56))
_WINDOW = {"kernel_size": 3, "padding": 1, "stride": 1}


def _squared(shapes: Any) -> dict[str, Any]:
    return {"size": (max(shapes["data"]),) * 2}


def _halves(shapes: Any) -> dict[str, Any]:
    """The first dim split in two, for any even one."""
    return {"sizes": (2, shapes["data"][0] // 2)}


def _every_second(shapes: Any) -> dict[str, Any]:
    rows, columns = shapes["data"]
    return {"size": (rows // 2, columns // 2), "stride": (2 * columns, 2)}


def _square_image(shapes: Any) -> dict[str, Any]:
    side = round(shapes["data"][2] ** 0.5)
    return {"output_size": (side, side), **_WINDOW}


OPERATORS = (
    # views
    _view("reshape", "torch.reshape(data, (-1,))", "np.reshape(data, (-1,))"),
    _view("view", "data.view(-1)", "data.reshape(-1)"),
    _view("ravel", "torch.ravel(data)", "np.reshape(data, (-1,))"),
    _view("flatten", "torch.flatten(data, 1)", "data.reshape(data.shape[0], -1)", images()),
    _view("unflatten", "torch.unflatten(data, 0, sizes)", "data.reshape(*sizes, -1)", attributes=_halves),
    _view("transpose", "torch.transpose(data, 0, 1)", "np.swapaxes(data, 0, 1)"),
    _view("swapaxes", "torch.swapaxes(data, 0, 1)", "np.swapaxes(data, 0, 1)", aliases=("swapdims",)),
    _view("t", "torch.t(data)", "np.transpose(data)"),
    _view("permute", "torch.permute(data, dims)", "np.transpose(data, dims)", _THREE, attributes={"dims": (2, 0, 1)}),
    _view("movedim", "torch.movedim(data, 0, -1)", "np.moveaxis(data, 0, -1)", _THREE, aliases=("moveaxis",)),
    _view("adjoint", "torch.adjoint(data)", "np.conj(data.T)", _COMPLEX, **WIDE),
    _view("squeeze", "torch.squeeze(data)", "np.squeeze(data)", _SINGLE),
    _view("squeeze_dim", "torch.squeeze(data, dim)", "np.squeeze(data, dim)", _SINGLE, attributes={"dim": 1}),
    _view("unsqueeze", "torch.unsqueeze(data, dim)", "np.expand_dims(data, dim)", attributes={"dim": 1}),
    _view("atleast_1d", "torch.atleast_1d(data)", "np.atleast_1d(data)", _VECTOR),
    _view("atleast_2d", "torch.atleast_2d(data)", "np.atleast_2d(data)", _VECTOR),
    _view("atleast_3d", "torch.atleast_3d(data)", "np.atleast_3d(data)"),
    _view("expand", "data.expand(size)", "np.broadcast_to(data, size)", _COLUMN, attributes=_squared),
    _view("broadcast_to", "torch.broadcast_to(data, size)", "np.broadcast_to(data, size)", _ROW, attributes=_squared),
    _view(
        "as_strided",
        "torch.as_strided(data, size, stride)",
        "data[: 2 * size[0] : 2, : 2 * size[1] : 2]",
        attributes=_every_second,
    ),
    _view(
        "sliding_windows",
        "data.unfold(1, size, 1)",
        "np.lib.stride_tricks.sliding_window_view(data, size, 1)",
        by_size(lambda n: {"data": Input(shape=(n, n))}, 32, 256, 1024),
        attributes={"size": 8},
        backward_bytes=0.0,
    ),
    _view("view_as_real", "torch.view_as_real(data)", "ref.view_as_real(data)", _COMPLEX, **WIDE),
    _view("view_as_complex", "torch.view_as_complex(data)", "ref.view_as_complex(data)", _PAIRS, **WIDE),
    # copies in another order
    _copy("transpose_contiguous", "data.t().contiguous()", "np.ascontiguousarray(data.T)"),
    _copy(
        "permute_contiguous",
        "data.permute(0, 2, 3, 1).contiguous()",
        "np.ascontiguousarray(np.transpose(data, (0, 2, 3, 1)))",
        images(),
    ),
    _copy(
        "swap_heads",
        "data.transpose(1, 2).contiguous()",
        "np.ascontiguousarray(np.swapaxes(data, 1, 2))",
        _SEQUENCE,
    ),
    _copy("flip", "torch.flip(data, dims)", "np.flip(data, dims).copy()", attributes={"dims": (0, 1)}),
    _copy("fliplr", "torch.fliplr(data)", "np.fliplr(data).copy()"),
    _copy("flipud", "torch.flipud(data)", "np.flipud(data).copy()"),
    _copy("rot90", "torch.rot90(data, k)", "np.rot90(data, k).copy()", attributes={"k": 1}),
    _copy(
        "roll",
        "torch.roll(data, shifts, dims)",
        "np.roll(data, shifts, dims)",
        attributes={"shifts": (3, 5), "dims": (0, 1)},
    ),
    _copy("roll_flat", "torch.roll(data, shifts)", "np.roll(data, shifts)", attributes={"shifts": 100}),
    _copy("repeat", "data.repeat(repeats)", "np.tile(data, repeats)", _TILED, attributes={"repeats": (2, 1, 2)}),
    _copy("tile", "torch.tile(data, dims)", "np.tile(data, dims)", _TILED, attributes={"dims": (2, 2)}),
    _copy(
        "repeat_interleave",
        "torch.repeat_interleave(data, repeats, dim=1)",
        "np.repeat(data, repeats, axis=1)",
        _THREE,
        attributes={"repeats": 2},
    ),
    _copy(
        "repeat_interleave_counts",
        "torch.repeat_interleave(data, repeats, dim=0)",
        "np.repeat(data, repeats, axis=0)",
        _COUNTED,
    ),
    _copy(
        "narrow_copy",
        "torch.narrow_copy(data, 1, start, length)",
        "data[:, start : start + length].copy()",
        attributes=lambda shapes: {"start": 1, "length": shapes["data"][1] // 2},
    ),
    _copy(
        "pixel_shuffle",
        "F.pixel_shuffle(data, factor)",
        "ref.pixel_shuffle(data, factor)",
        images(),
        attributes={"factor": 2},
    ),
    _copy(
        "pixel_unshuffle",
        "F.pixel_unshuffle(data, factor)",
        "ref.pixel_unshuffle(data, factor)",
        images(),
        attributes={"factor": 2},
    ),
    _copy(
        "channel_shuffle",
        "F.channel_shuffle(data, groups)",
        "ref.channel_shuffle(data, groups)",
        images(),
        attributes={"groups": 4},
    ),
    _copy(
        "unfold",
        "F.unfold(data, kernel_size, padding=padding, stride=stride)",
        "ref.unfold(data, kernel_size, padding, stride)",
        _PATCHED,
        attributes=_WINDOW,
    ),
    _shaping(
        "fold",
        "F.fold(data, output_size, kernel_size, padding=padding, stride=stride)",
        "ref.fold(data, output_size, kernel_size, padding, stride)",
        _PATCHES,
        attributes=_square_image,
        flops=per_output(9),
    ),
    # triangles and diagonals
    _copy("tril", "torch.tril(data)", "np.tril(data)"),
    _copy("triu", "torch.triu(data)", "np.triu(data)"),
    _copy("inplace_tril", "data.tril_()", "ref.triangle(data)", aliases=("tril_",), **NO_GRADIENT),
    _copy("inplace_triu", "data.triu_()", "ref.triangle(data, upper=True)", aliases=("triu_",), **NO_GRADIENT),
    _copy("diag", "torch.diag(data)", "np.diag(data)"),
    _shaping("diag_matrix", "torch.diag(data)", "np.diag(data)", _DIAGONAL),
    _shaping("diagflat", "torch.diagflat(data)", "np.diagflat(data)", _DIAGONAL),
    _shaping("diag_embed", "torch.diag_embed(data)", "ref.diag_embed(data)", _DIAGONALS),
)
