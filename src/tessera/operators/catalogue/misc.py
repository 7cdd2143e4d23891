"""Operators of no other category: einsum, interpolation and sampling of images, distances, segments, one-hot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, square
from tessera.operators.draws import Draw, cells, integers, normal
from tessera.operators.operator import Call, Input, Operator, Shape, by_size
from tessera.operators.work import nothing_moved, per_input, per_output


def _misc(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    return Operator(name=name, category="misc", torch=torch, reference=reference, sizes=sizes, **rest)


def _einsum_flops(call: Call) -> float:
    """For each combination of indices one FLOP if there is a product, and one if something is summed."""
    terms, result = str(call.attributes["equation"]).split("->")
    sizes = {
        letter: n
        for term, shape in zip(terms.split(","), call.shapes.values(), strict=True)
        for letter, n in zip(term, shape, strict=True)
    }
    return ((len(call.shapes) > 1) + (set(sizes) > set(result))) * float(math.prod(sizes.values()))


def _einsum(name: str, equation: str, *scales: Mapping[str, int]) -> Operator:
    """A sum of products; a scale gives the range of each index."""
    terms, _ = equation.split("->")
    names = ("lhs", "rhs") if "," in terms else ("data",)
    given = ", ".join(names)
    return _misc(
        f"einsum_{name}",
        f"torch.einsum(equation, {given})",
        f"np.einsum(equation, {given}, optimize=True)",
        by_size(
            lambda scale: {
                key: Input(shape=tuple(scale[letter] for letter in term))
                for key, term in zip(names, terms.split(","), strict=True)
            },
            *scales,
        ),
        attributes={"equation": equation},
        flops=_einsum_flops,
        **({"moved": nothing_moved} if _is_view(equation) else {}),
    )


def _is_view(equation: str) -> bool:
    """Whether nothing is multiplied or summed: torch then gives another view of its input."""
    terms, result = equation.split("->")
    return "," not in terms and set(terms) == set(result)


def _ranges(letters: str, *sizes: tuple[int, ...]) -> list[dict[str, int]]:
    return [dict(zip(letters, one, strict=True)) for one in sizes]


def _doubled(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": tuple(2 * n for n in shapes["data"][2:])}


def _halved(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": tuple(n // 2 for n in shapes["data"][2:])}


_SEQUENCES = by_size(lambda n, s: {"data": Input(shape=(n, 16, s))}, (1, 64), (16, 2**11), (64, 2**13))
_IMAGES = by_size(lambda c, s: {"data": Input(shape=(1, c, s, s))}, (8, 16), (64, 56), (128, 224))
_VOLUMES = by_size(lambda c, s: {"data": Input(shape=(1, c, s, s, s))}, (2, 8), (8, 24), (16, 64))


def _interpolated(
    name: str, mode: str, sizes: Sizes, taps: int, *, down: bool = False, more: str = "", **rest: Any
) -> Operator:
    """An image twice or half as large; `taps` is the number of values that make one."""
    return _misc(
        name,
        f"F.interpolate(data, size, mode='{mode}'{more})",
        f"ref.interpolate(data, size, '{mode}'{more})",
        sizes,
        attributes=_halved if down else _doubled,
        flops=per_output(2 * taps) if taps > 1 else per_output(0),
        backward_flops=1.0,
        backward_bytes=1.0,
        **rest,
    )


def _sampled(name: str, mode: str, padding_mode: str, taps: int, **rest: Any) -> Operator:
    return _misc(
        name,
        "F.grid_sample(data, grid, mode, padding_mode, align_corners=False)",
        "ref.grid_sample(data, grid, mode, padding_mode)",
        attributes={"mode": mode, "padding_mode": padding_mode},
        flops=per_output(2 * taps),
        **WIDE,
        **rest,
    )


def _inside(size: int, start: float) -> Draw:
    """Places well between pixels (from 0.1) or well around them (from 0.6), up to a cell beyond the edges."""
    return Draw(
        f"(2 * (rng.integers(-1, {size}, shape) + rng.uniform({start}, {start + 0.8}, shape)) + 1) / {size} - 1"
    )


_SAMPLED = by_size(
    lambda c, s: {"data": Input(shape=(1, c, s, s)), "grid": Input(shape=(1, s, s, 2), draw=_inside(s, 0.1))},
    (8, 16),
    (64, 56),
    (64, 224),
)
_SAMPLED_PLACES = by_size(
    lambda c, s: {
        "data": Input(shape=(1, c, s, s)),
        "grid": Input(shape=(1, s, s, 2), draw=_inside(s, 0.6), grad=False),
    },
    (8, 16),
    (64, 56),
    (64, 224),
)
_SAMPLED_VOLUME = by_size(
    lambda c, s: {"data": Input(shape=(1, c, s, s, s)), "grid": Input(shape=(1, s, s, s, 3), draw=_inside(s, 0.1))},
    (2, 8),
    (8, 24),
    (8, 64),
)
_TRANSFORMS = by_size(lambda n: {"theta": Input(shape=(n, 2, 3))}, 1, 16, 256)


def _clouds(lhs: Draw = normal, rhs: Draw = normal) -> Sizes:
    return by_size(
        lambda n, d: {"lhs": Input(shape=(n, d), draw=lhs), "rhs": Input(shape=(n, d), draw=rhs)},
        (64, 16),
        (512, 64),
        (2048, 64),
    )


_CLOUD = by_size(lambda n, d: {"data": Input(shape=(n, d))}, (64, 16), (384, 32), (1536, 32))
_PAIR = by_size(lambda n: {"lhs": Input(shape=(n, n)), "rhs": Input(shape=(n, n))}, 64, 1024, 4096)
_LABELS = by_size(lambda n: {"index": Input(shape=(n,), draw=integers(128), kind="int64")}, 64, 2**13, 2**17)
_SEGMENTS = by_size(
    lambda n: {
        "data": Input(shape=(16 * n, 32)),
        "lengths": Input(
            shape=(n,),
            kind="int64",
            draw=Draw("8 + rng.multinomial(8 * shape[0], np.full(shape[0], 1 / shape[0]))"),
        ),
    },
    8,
    2**11,
    2**14,
)


def _distances(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    def flops(call: Call) -> float:
        return 3.0 * math.prod(call.outputs[0]) * next(iter(call.shapes.values()))[-1]

    return _misc(name, torch, reference, sizes, flops=flops, **WIDE, **rest)


OPERATORS = (
    _einsum("matmul", "ij,jk->ik", *_ranges("ijk", (64, 64, 64), (512, 512, 512), (2048, 2048, 2048))),
    _einsum("batched", "bij,bjk->bik", *_ranges("bijk", (4, 32, 32, 32), (16, 256, 64, 256), (64, 512, 64, 512))),
    _einsum(
        "attention",
        "bqhd,bkhd->bhqk",
        *_ranges("bqkhd", (1, 16, 16, 4, 32), (1, 256, 256, 12, 64), (4, 512, 512, 12, 64)),
    ),
    _einsum("outer", "i,j->ij", *_ranges("ij", (64, 64), (1024, 1024), (4096, 4096))),
    _einsum("hadamard", "ij,ij->ij", *_ranges("ij", (64, 64), (1024, 1024), (4096, 4096))),
    _einsum("rows_dot", "ij,ij->i", *_ranges("ij", (64, 64), (1024, 1024), (4096, 4096))),
    _einsum("sum", "ij->j", *_ranges("ij", (64, 64), (1024, 1024), (4096, 4096))),
    _einsum("transpose", "ijk->kij", *_ranges("ijk", (16, 16, 16), (128, 128, 64), (256, 256, 256))),
    _einsum("diagonal", "ii->i", *_ranges("i", (64,), (1024,), (4096,))),
    _interpolated("interpolate_nearest", "nearest", _IMAGES, 1),
    _interpolated("interpolate_nearest_exact", "nearest-exact", _IMAGES, 1),
    _interpolated("interpolate_linear", "linear", _SEQUENCES, 2),
    _interpolated("interpolate_bilinear", "bilinear", _IMAGES, 4),
    _interpolated("interpolate_bilinear_corners", "bilinear", _IMAGES, 4, more=", align_corners=True"),
    _interpolated(
        "interpolate_bilinear_antialias", "bilinear", _IMAGES, 16, down=True, more=", antialias=True", **WIDE
    ),
    _interpolated("interpolate_bicubic", "bicubic", _IMAGES, 16),
    _interpolated("interpolate_trilinear", "trilinear", _VOLUMES, 8),
    _interpolated("interpolate_area", "area", _IMAGES, 4, down=True),
    _sampled("grid_sample", "bilinear", "zeros", 4, sizes=_SAMPLED),
    _sampled("grid_sample_border", "bilinear", "border", 4, sizes=_SAMPLED),
    _sampled("grid_sample_nearest", "nearest", "zeros", 1, sizes=_SAMPLED_PLACES),
    _sampled("grid_sample_3d", "bilinear", "zeros", 8, sizes=_SAMPLED_VOLUME),
    _misc(
        "affine_grid",
        "F.affine_grid(theta, size, align_corners=False)",
        "ref.affine_grid(theta, size)",
        _TRANSFORMS,
        attributes=lambda shapes: {"size": (shapes["theta"][0], 3, 64, 64)},
        flops=per_output(6),
        backward_flops=1.0,
        backward_bytes=1.0,
    ),
    _distances("cdist", "torch.cdist(lhs, rhs)", "scipy.spatial.distance.cdist(lhs, rhs)", _clouds()),
    _distances(
        "cdist_manhattan",
        "torch.cdist(lhs, rhs, p=1.0)",
        "scipy.spatial.distance.cdist(lhs, rhs, 'cityblock')",
        _clouds(cells(-3, 3, 0.05, 0.45), cells(-3, 3, 0.55, 0.95)),
    ),
    _distances("pdist", "F.pdist(data)", "scipy.spatial.distance.pdist(data)", _CLOUD),
    _misc(
        "cosine_similarity",
        "F.cosine_similarity(lhs, rhs, dim=-1)",
        "ref.cosine_similarity(lhs, rhs)",
        _PAIR,
        flops=per_input("lhs", 6),
    ),
    _misc(
        "pairwise_distance",
        "F.pairwise_distance(lhs, rhs, eps=eps)",
        "np.linalg.norm(lhs - rhs + eps, axis=-1)",
        _PAIR,
        attributes={"eps": 1e-6},
        flops=per_input("lhs", 4),
    ),
    _misc(
        "normalize",
        "F.normalize(data, dim=dim)",
        "ref.normalize(data, dim)",
        square(),
        attributes={"dim": -1},
        flops=per_input("data", 3),
    ),
    _misc("gradient", "torch.gradient(data)", "np.gradient(data)", square(), flops=per_input("data", 4)),
    _misc(
        "one_hot",
        "F.one_hot(index, num_classes)",
        "np.eye(num_classes, dtype=np.int64)[index]",
        _LABELS,
        attributes={"num_classes": 128},
        **NO_GRADIENT,
    ),
    _misc(
        "segment_reduce",
        "torch.segment_reduce(data, 'sum', lengths=lengths)",
        "np.add.reduceat(data, np.cumsum(lengths) - lengths)",
        _SEGMENTS,
        flops=per_input("data"),
        **WIDE,
    ),
)
