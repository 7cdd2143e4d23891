"""Operators of no other category: einsum, interpolation and sampling of images, distances, segments, one-hot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.families import (
    MATRIX_SIDES,
    NO_GRADIENT,
    WIDE_DTYPES,
    Sizes,
    define_family,
    make_square,
)
from tessera.operators.draws import Draw, between_multiples, integers, normal
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, count_no_bytes, make_sizes

_define_misc = define_family("misc")


def _count_einsum_flops(call: OperatorCall) -> float:
    """Count the FLOPs of an einsum: per combination of indices, one for a product and one for a sum, if any."""
    terms, result = str(call.attributes["equation"]).split("->")
    sizes = {
        letter: n
        for term, shape in zip(terms.split(","), call.shapes.values(), strict=True)
        for letter, n in zip(term, shape, strict=True)
    }
    return ((len(call.shapes) > 1) + (set(sizes) > set(result))) * float(math.prod(sizes.values()))


def _define_einsum(name: str, equation: str, *scales: tuple[int, ...]) -> Operator:
    """Define an einsum of one or two inputs; `scales` are dim sizes of the letters in order of occurrence."""
    terms, _ = equation.split("->")
    letters = [letter for letter in dict.fromkeys(terms) if letter != ","]

    def build_inputs(*lengths: int) -> dict[str, Input]:
        scale = dict(zip(letters, lengths, strict=True))
        return {
            key: Input(tuple(scale[letter] for letter in term))
            for key, term in zip(names, terms.split(","), strict=True)
        }

    names = ("lhs", "rhs") if "," in terms else ("data",)
    given = ", ".join(names)
    return _define_misc(
        f"einsum_{name}",
        f"torch.einsum(equation, {given})",
        f"np.einsum(equation, {given}, optimize=True)",
        make_sizes(build_inputs, *scales),
        attributes={"equation": equation},
        flops=_count_einsum_flops,
        **({"moved": count_no_bytes} if _is_view(equation) else {}),
    )


def _is_view(equation: str) -> bool:
    """Return whether an einsum only permutes dims, so that torch returns a view of the input."""
    terms, result = equation.split("->")
    return "," not in terms and set(terms) == set(result)


def _double_size(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": tuple(2 * n for n in shapes["data"][2:])}


def _halve_size(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": tuple(n // 2 for n in shapes["data"][2:])}


_SEQUENCE_INPUTS = make_sizes(lambda n, s: {"data": Input((n, 16, s))}, (1, 64), (16, 2**11), (64, 2**13))
_IMAGE_INPUTS = make_sizes(lambda c, s: {"data": Input((1, c, s, s))}, (8, 16), (64, 56), (128, 224))
_VOLUME_INPUTS = make_sizes(lambda c, s: {"data": Input((1, c, s, s, s))}, (2, 8), (8, 24), (16, 64))


def _define_interpolation(
    name: str, mode: str, sizes: Sizes, taps: int, *, down: bool = False, options: str = "", **rest: Any
) -> Operator:
    """Define a resampling to twice (or with `down`, half) the size; `taps` is the number of input values per output."""
    return _define_misc(
        name,
        f"F.interpolate(data, size, mode='{mode}'{options})",
        f"ref.interpolate(data, size, '{mode}'{options})",
        sizes,
        attributes=_halve_size if down else _double_size,
        flops=2 * taps if taps > 1 else 0,
        backward_flops=1.0,
        backward_bytes=1.0,
        **rest,
    )


def _define_grid_sample(name: str, mode: str, padding_mode: str, taps: int, **rest: Any) -> Operator:
    return _define_misc(
        name,
        "F.grid_sample(data, grid, mode, padding_mode, align_corners=False)",
        "ref.grid_sample(data, grid, mode, padding_mode)",
        attributes={"mode": mode, "padding_mode": padding_mode},
        flops=2 * taps,
        **WIDE_DTYPES,
        **rest,
    )


def _draw_coordinates(size: int, start: float) -> Draw:
    """Return random grid coordinates, up to one pixel beyond the edges.

    With `start` 0.1 they avoid pixel centres; with 0.6 they avoid the midpoints between pixels.
    """
    return Draw(
        f"(2 * (rng.integers(-1, {size}, shape) + rng.uniform({start}, {start + 0.8}, shape)) + 1) / {size} - 1"
    )


def _make_grid_sample(dims: int, start: float, *scales: tuple[int, int], grad: bool = True) -> Sizes:
    """Make data (1, channels, *space), and a grid of as many coordinates from `_draw_coordinates`."""

    def build_inputs(c: int, s: int) -> dict[str, Input]:
        space = (s,) * dims
        return {"data": Input((1, c, *space)), "grid": Input((1, *space, dims), _draw_coordinates(s, start), grad=grad)}

    return make_sizes(build_inputs, *scales)


_SAMPLE_SCALES = ((8, 16), (64, 56), (64, 224))
_GRID_SAMPLE_INPUTS = _make_grid_sample(2, 0.1, *_SAMPLE_SCALES)
_NEAREST_SAMPLE_INPUTS = _make_grid_sample(2, 0.6, *_SAMPLE_SCALES, grad=False)
_GRID_SAMPLE_3D_INPUTS = _make_grid_sample(3, 0.1, (2, 8), (8, 24), (8, 64))
_AFFINE_INPUTS = make_sizes(lambda n: {"theta": Input((n, 2, 3))}, 1, 16, 256)


def _make_point_clouds(lhs: Draw = normal, rhs: Draw = normal) -> Sizes:
    return make_sizes(
        lambda n, d: {"lhs": Input((n, d), lhs), "rhs": Input((n, d), rhs)}, (64, 16), (512, 64), (2048, 64)
    )


_POINT_CLOUD_INPUTS = make_sizes(lambda n, d: {"data": Input((n, d))}, (64, 16), (384, 32), (1536, 32))
_MATRIX_PAIR_INPUTS = make_sizes(lambda n: {"lhs": Input((n, n)), "rhs": Input((n, n))}, *MATRIX_SIDES)
_LABEL_INPUTS = make_sizes(lambda n: {"index": Input((n,), integers(128), "int64")}, 64, 2**13, 2**17)
_SEGMENT_INPUTS = make_sizes(
    lambda n: {
        "data": Input((16 * n, 32)),
        "lengths": Input((n,), Draw("8 + rng.multinomial(8 * shape[0], np.full(shape[0], 1 / shape[0]))"), "int64"),
    },
    8,
    2**11,
    2**14,
)


def _count_distance_flops(call: OperatorCall) -> float:
    return 3.0 * math.prod(call.outputs[0]) * next(iter(call.shapes.values()))[-1]


_define_distances = define_family("misc", flops=_count_distance_flops, **WIDE_DTYPES)


_SQUARE_SCALES = ((64, 64), (1024, 1024), (4096, 4096))

OPERATORS = (
    _define_einsum("matmul", "ij,jk->ik", (64, 64, 64), (512, 512, 512), (2048, 2048, 2048)),
    _define_einsum("batched", "bij,bjk->bik", (4, 32, 32, 32), (16, 256, 64, 256), (64, 512, 64, 512)),
    _define_einsum("attention", "bqhd,bkhd->bhqk", (1, 16, 4, 32, 16), (1, 256, 12, 64, 256), (4, 512, 12, 64, 512)),
    _define_einsum("outer", "i,j->ij", *_SQUARE_SCALES),
    _define_einsum("hadamard", "ij,ij->ij", *_SQUARE_SCALES),
    _define_einsum("rows_dot", "ij,ij->i", *_SQUARE_SCALES),
    _define_einsum("sum", "ij->j", *_SQUARE_SCALES),
    _define_einsum("transpose", "ijk->kij", (16, 16, 16), (128, 128, 64), (256, 256, 256)),
    _define_einsum("diagonal", "ii->i", (64,), (1024,), (4096,)),
    _define_interpolation("interpolate_nearest", "nearest", _IMAGE_INPUTS, 1),
    _define_interpolation("interpolate_nearest_exact", "nearest-exact", _IMAGE_INPUTS, 1),
    _define_interpolation("interpolate_linear", "linear", _SEQUENCE_INPUTS, 2),
    _define_interpolation("interpolate_bilinear", "bilinear", _IMAGE_INPUTS, 4),
    _define_interpolation("interpolate_bilinear_corners", "bilinear", _IMAGE_INPUTS, 4, options=", align_corners=True"),
    _define_interpolation(
        "interpolate_bilinear_antialias",
        "bilinear",
        _IMAGE_INPUTS,
        16,
        down=True,
        options=", antialias=True",
        **WIDE_DTYPES,
    ),
    _define_interpolation("interpolate_bicubic", "bicubic", _IMAGE_INPUTS, 16),
    _define_interpolation("interpolate_trilinear", "trilinear", _VOLUME_INPUTS, 8),
    _define_interpolation("interpolate_area", "area", _IMAGE_INPUTS, 4, down=True),
    _define_grid_sample("grid_sample", "bilinear", "zeros", 4, sizes=_GRID_SAMPLE_INPUTS),
    _define_grid_sample("grid_sample_border", "bilinear", "border", 4, sizes=_GRID_SAMPLE_INPUTS),
    _define_grid_sample("grid_sample_nearest", "nearest", "zeros", 1, sizes=_NEAREST_SAMPLE_INPUTS),
    _define_grid_sample("grid_sample_3d", "bilinear", "zeros", 8, sizes=_GRID_SAMPLE_3D_INPUTS),
    _define_misc(
        "affine_grid",
        "F.affine_grid(theta, size, align_corners=False)",
        "ref.affine_grid",
        _AFFINE_INPUTS,
        attributes=lambda shapes: {"size": (shapes["theta"][0], 3, 64, 64)},
        flops=6,
        backward_flops=1.0,
        backward_bytes=1.0,
    ),
    _define_distances("cdist", reference="scipy.spatial.distance.cdist", sizes=_make_point_clouds()),
    _define_distances(
        "cdist_manhattan",
        "torch.cdist(lhs, rhs, p=1.0)",
        "scipy.spatial.distance.cdist(lhs, rhs, 'cityblock')",
        _make_point_clouds(between_multiples(-3, 3, 0.05, 0.45), between_multiples(-3, 3, 0.55, 0.95)),
    ),
    _define_distances("pdist", "F.pdist", "scipy.spatial.distance.pdist", _POINT_CLOUD_INPUTS),
    _define_misc(
        "cosine_similarity",
        "F.cosine_similarity(lhs, rhs, dim=-1)",
        "ref.cosine_similarity",
        _MATRIX_PAIR_INPUTS,
        flops=6,
        flops_of="lhs",
    ),
    _define_misc(
        "pairwise_distance",
        "F.pairwise_distance(lhs, rhs, eps=eps)",
        "np.linalg.norm(lhs - rhs + eps, axis=-1)",
        _MATRIX_PAIR_INPUTS,
        attributes={"eps": 1e-6},
        flops=4,
        flops_of="lhs",
    ),
    _define_misc(
        "normalize",
        "F.normalize(data, dim=dim)",
        "ref.normalize",
        make_square(),
        attributes={"dim": -1},
        flops=3,
        flops_of="data",
    ),
    _define_misc("gradient", sizes=make_square(), flops=4, flops_of="data"),
    _define_misc(
        "one_hot",
        "F.one_hot",
        "np.eye(num_classes, dtype=np.int64)[index]",
        _LABEL_INPUTS,
        attributes={"num_classes": 128},
        **NO_GRADIENT,
    ),
    _define_misc(
        "segment_reduce",
        "torch.segment_reduce(data, 'sum', lengths=lengths)",
        "np.add.reduceat(data, np.cumsum(lengths) - lengths)",
        _SEGMENT_INPUTS,
        flops=1,
        flops_of="data",
        **WIDE_DTYPES,
    ),
)
