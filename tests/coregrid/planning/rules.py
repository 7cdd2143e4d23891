"""A second implementation of the chip's rules with plain loops and tuples, sharing no code with the planner."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.convolution import Convolution

# (height, width) in tiles, in order of preference
SUB_BLOCK_SIZES = (
    (2, 4), (4, 2), (1, 8), (8, 1), (1, 7), (7, 1), (2, 3), (3, 2), (1, 6), (6, 1),
    (1, 5), (5, 1), (2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1),
)  # fmt: skip
TILE_BYTES = {"bfloat16": 2048, "bfloat8_b": 1088, "float32": 4096}


def round_up(value: int, multiple: int) -> int:
    return value + -value % multiple


def choose_core_count(tiles: int, most: int, multiple: int = 1) -> int:
    """Return the largest number of cores of which none is idle: the largest d up to `most` for which the padding,
    round_up(tiles, d * multiple) - tiles, is smaller than the share of one core, round_up(tiles, d * multiple) / d.
    """
    result = 1
    for d in range(1, most + 1):
        padded = -(-tiles // (d * multiple)) * d * multiple
        if padded - tiles < padded / d:
            result = d
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledPlan:
    """The plan of a convolution in one layout, computed by the rules of this module."""

    cores_nhw: int
    cores_in: int
    cores_out: int
    in_shard: tuple[int, int]
    out_shard: tuple[int, int]
    act_block: tuple[int, int]  # tiles
    out_width: int
    blocks: tuple[int, int]  # number of blocks along the height and the inner dim
    sub_block: tuple[int, int]
    spans: list[tuple[int, int]]  # first and last padded stick of each core, inclusive
    buffers: dict[str, int]


def apply_rules(
    conv: Convolution,
    layout: str,
    grid: tuple[int, int],  # rows, columns
    *,
    dtype: str = "bfloat16",
    weights: str = "bfloat16",
    row_major_input: bool = False,
    override: int = 0,
    div: int = 1,
    full_inner: bool = False,
    transposed: bool = False,
    double_act: bool = False,
    double_weights: bool = False,
    fp32: bool = False,
    bias: bool = False,
) -> RuledPlan:
    y, x = grid
    if transposed:
        y, x = x, y
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel, conv.stride, conv.dilation
    (top, bottom), (left, right) = conv.padding
    hp, wp = conv.height + top + bottom, conv.width + left + right
    ho, wo = (hp - dh * (kh - 1) - 1) // sh + 1, (wp - dw * (kw - 1) - 1) // sw + 1
    outputs, inputs = conv.batch * ho * wo, conv.batch * conv.height * conv.width
    matmul = conv.kernel == conv.stride == (1, 1) and top + bottom + left + right == 0
    aligned = 8 if row_major_input and not matmul and layout != "WIDTH" else 32
    tiles, in_units, out_tiles = (
        round_up(outputs, 32) // 32,
        round_up(conv.in_channels, aligned) // aligned,
        round_up(conv.out_channels, 32) // 32,
    )
    nhw = c_in = c_out = 1
    if layout == "HEIGHT":
        nhw = choose_core_count(tiles, y * x, max(1, override // 32))
    elif layout == "BLOCK":
        nhw, c_in, c_out = (
            choose_core_count(tiles, y, max(1, override // 32)),
            choose_core_count(in_units, x),
            choose_core_count(out_tiles, x),
        )
        if matmul:  # the cores of the input and of the output are the same
            c_in = c_out = next(d for d in range(x, 0, -1) if in_units % d == out_tiles % d == 0)
    else:
        c_in, c_out = choose_core_count(in_units, y * x), choose_core_count(out_tiles, y * x)
    in_shard = round_up(inputs, nhw * 32) // nhw, round_up(conv.in_channels, c_in * aligned) // c_in
    out_shard = round_up(outputs, nhw * 32) // nhw, round_up(conv.out_channels, c_out * 32) // c_out

    act_h = shard_h = out_shard[0] // 32
    if override:
        act_h = override // 32
        while shard_h % act_h:
            act_h -= 1
    if layout == "HEIGHT":
        act_w, inner = round_up(in_shard[1] * kw, 32) // 32, kh
    elif layout == "BLOCK":
        taps = kw * kh if full_inner else kw
        act_w, inner = round_up(in_shard[1] * taps, 32) // 32, c_in * kh * kw // taps
    else:
        act_w, inner = in_shard[1] * kh * kw // div // 32, c_in * div
    out_w = out_shard[1] // 32
    sub = next(
        (h, w)
        for h, w in SUB_BLOCK_SIZES
        if h * w <= (4 if fp32 else 8) and act_h % h == 0 and out_w % w == 0 and (w == out_w or h == 1)
    )

    spans = []
    for core in range(nhw):
        first, last = core * out_shard[0], min((core + 1) * out_shard[0], outputs) - 1
        corners = []
        for output in (first, last):
            image, pixel = divmod(output, ho * wo)
            corners.append(image * hp * wp + pixel // wo * sh * wp + pixel % wo * sw)
        spans.append((corners[0], corners[1] + dh * (kh - 1) * wp + dw * (kw - 1)))

    stick = "float32" if dtype == "float32" else "bfloat16"
    buffers = {
        "weights": out_w * act_w * TILE_BYTES[weights],
        "act": act_h * act_w * TILE_BYTES[stick if layout == "HEIGHT" else dtype] * (2 if double_act else 1),
        "act tilized": act_h * act_w * TILE_BYTES[dtype],
        "act row major": 0,
        "bias": out_w * TILE_BYTES[weights] if bias else 0,
        "scratch": 64,
        "output": shard_h * out_w * TILE_BYTES[dtype],
        "haloed input": max(b - a + 1 for a, b in spans) * in_shard[1] * (4 if stick == "float32" else 2),
    }
    if layout != "HEIGHT" and c_in == c_out == 1:  # nothing to multicast
        buffers["act"] = 0
    if layout == "HEIGHT" and shard_h > act_h:
        buffers["weights"] *= kh
    elif double_weights:
        buffers["weights"] *= 2
    if layout == "BLOCK" and stick != dtype:
        buffers["act row major"] = act_h * act_w * TILE_BYTES[stick]
    elif layout == "WIDTH":
        buffers["act row major"] = 2 * act_w * TILE_BYTES[stick]
    return RuledPlan(
        cores_nhw=nhw,
        cores_in=c_in,
        cores_out=c_out,
        in_shard=in_shard,
        out_shard=out_shard,
        act_block=(act_h, act_w),
        out_width=out_w,
        blocks=(shard_h // act_h, inner),
        sub_block=sub,
        spans=spans,
        buffers=buffers,
    )
