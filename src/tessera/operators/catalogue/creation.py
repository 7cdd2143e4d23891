"""Creation of tensors: filled tensors, ranges, copies, window functions.

An operator without tensor inputs takes its shape and dtype from an input named `like`, which it does not read:
`--input like=(512,512)` sets the shape and `--dtype` the dtype, as for other operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tessera.operators.catalogue.families import (
    MATRIX_SIDES,
    NO_FLOAT16,
    NO_GRADIENT,
    WIDE_DTYPES,
    Settings,
    Sizes,
    define_family,
    make_images,
    make_square,
    write_both,
)
from tessera.operators.draws import Draw, constant, integers, uniform
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, count_no_bytes, make_sizes

CONSTANT_ONE = constant(1.0)


def count_written_bytes(call: OperatorCall) -> float:
    """Count the bytes that an operator writes, for operators that read no input."""
    return float(sum(call.written))


def _get_length(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"n": shapes["like"][0]}


def get_size(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": shapes["like"]}


def _make_like(*counts: int) -> Sizes:
    return make_sizes(lambda n: {"like": Input((n,), CONSTANT_ONE)}, *counts)


_MATRIX_INPUTS = make_sizes(lambda n: {"like": Input((n, n), CONSTANT_ONE)}, *MATRIX_SIDES)
_RANGE_INPUTS = _make_like(2**12, 2**20, 2**24)
_ONE_ELEMENT_INPUTS = _make_like(1, 1, 1)
_SPARSE_INPUTS = make_sizes(
    lambda n: {"index": Input((2, n), integers(n // 4), "int64"), "data": Input((n,), grad=False)}, 256, 2**12, 2**14
)
_SIDE_INPUTS = _make_like(64, 1024, 4096)
_WINDOW_INPUTS = _make_like(512, 2**16, 2**20)
_LIST_INPUTS = _make_like(16, 2**12, 2**18)


_CREATION_COSTS: Settings = {"moved": count_written_bytes, **NO_GRADIENT}
_define_creation = define_family("creation", default_sizes=_MATRIX_INPUTS, attributes=get_size, **_CREATION_COSTS)
_define_empty = partial(_define_creation, check="shape", moved=count_no_bytes)
# a one-dimensional tensor whose length `n` is the length of the input `like`
_define_sequence = define_family("creation", default_sizes=_RANGE_INPUTS, attributes=_get_length, **_CREATION_COSTS)


def _define_window(name: str, torch: str, reference: str, flops: float) -> Operator:
    """Define the creation of a symmetric window function of `n` points."""
    return _define_sequence(name, torch, reference, _WINDOW_INPUTS, flops=flops, **WIDE_DTYPES)


_define_copy = define_family("creation")
_define_inplace = define_family("creation", moved=count_written_bytes, **NO_GRADIENT)


def _make_parts(first: str, second: str, draw: Draw) -> Sizes:
    return make_sizes(lambda n: {first: Input((n, n), draw), second: Input((n, n), draw)}, 64, 1024, 2048)


_TWO_MATRIX_INPUTS = make_sizes(lambda n: {"data": Input((n, n)), "source": Input((n, n))}, *MATRIX_SIDES)
_POINT_INPUTS = make_sizes(lambda n: {"data": Input((n,), uniform(0.5, 1.0))}, 64, 2**16, 2**20)

OPERATORS = (
    # filled
    _define_creation("zeros", "torch.zeros(size, dtype=like.dtype)", "np.zeros(size, like.dtype)"),
    _define_creation("ones", "torch.ones(size, dtype=like.dtype)", "np.ones(size, like.dtype)"),
    _define_creation("full", "torch.full(size, 0.5, dtype=like.dtype)", "np.full(size, 0.5, like.dtype)"),
    _define_empty("empty", "torch.empty(size, dtype=like.dtype)", "np.empty(size, like.dtype)"),
    _define_creation("zeros_like", *write_both("zeros_like(like)")),
    _define_creation("ones_like", *write_both("ones_like(like)")),
    _define_creation("full_like", *write_both("full_like(like, 0.5)")),
    _define_empty("empty_like", *write_both("empty_like(like)")),
    _define_creation("new_zeros", "like.new_zeros(size)", "np.zeros(size, like.dtype)"),
    _define_creation("new_ones", "like.new_ones(size)", "np.ones(size, like.dtype)"),
    _define_empty("new_empty", "like.new_empty(size)", "np.empty(size, like.dtype)"),
    _define_creation("new_full", "like.new_full(size, 0.5)", "np.full(size, 0.5, like.dtype)"),
    _define_empty(
        "empty_strided",
        "torch.empty_strided(size, (1, size[0]), dtype=like.dtype)",
        "np.empty(size, like.dtype, order='F')",
    ),
    _define_empty(
        "empty_permuted",
        "torch.empty_permuted(size, (1, 0), dtype=like.dtype)",
        "np.empty(size, like.dtype, order='F')",
    ),
    _define_creation(
        "scalar_tensor",
        "torch.scalar_tensor(0.5, dtype=like.dtype)",
        "np.array(0.5, like.dtype)",
        _ONE_ELEMENT_INPUTS,
        attributes={},
    ),
    _define_creation(
        "sparse_coo_tensor",
        reference="ref.add_at(np.zeros(size), tuple(index), data)",
        sizes=_SPARSE_INPUTS,
        attributes=lambda shapes: {"size": (shapes["data"][0] // 4,) * 2},
        moved=lambda call: float(call.read["index"]),
    ),
    _define_sequence("eye", *write_both("eye(n, dtype=like.dtype)"), _SIDE_INPUTS),
    # ranges
    _define_sequence("arange", *write_both("arange(n)")),
    _define_sequence("arange_float", *write_both("arange(n, dtype=like.dtype)"), **WIDE_DTYPES),
    _define_sequence("linspace", *write_both("linspace(0.0, 1.0, n, dtype=like.dtype)"), **NO_FLOAT16),
    _define_sequence("logspace", *write_both("logspace(-2.0, 2.0, n, dtype=like.dtype)"), flops=1, **WIDE_DTYPES),
    _define_sequence("tril_indices", "torch.tril_indices(n, n)", "np.stack(np.tril_indices(n))", _SIDE_INPUTS),
    _define_sequence("triu_indices", "torch.triu_indices(n, n)", "np.stack(np.triu_indices(n))", _SIDE_INPUTS),
    _define_sequence(
        "tensor",
        "torch.tensor(values, dtype=like.dtype)",
        "np.array(values, like.dtype)",
        _LIST_INPUTS,
        attributes=lambda shapes: {"values": [k / 8 for k in range(shapes["like"][0])]},
    ),
    # window functions
    _define_window("hann_window", "torch.hann_window(n, False, dtype=like.dtype)", "np.hanning(n)", 3),
    _define_window("hamming_window", "torch.hamming_window(n, False, dtype=like.dtype)", "np.hamming(n)", 3),
    _define_window("blackman_window", "torch.blackman_window(n, False, dtype=like.dtype)", "np.blackman(n)", 6),
    _define_window("bartlett_window", "torch.bartlett_window(n, False, dtype=like.dtype)", "np.bartlett(n)", 3),
    _define_window("kaiser_window", "torch.kaiser_window(n, False, 12.0, dtype=like.dtype)", "np.kaiser(n, 12.0)", 6),
    _define_window(
        "gaussian_window",
        "torch.signal.windows.gaussian(n, std=n / 6, dtype=like.dtype)",
        "scipy.signal.windows.gaussian(n, n / 6)",
        4,
    ),
    _define_window(
        "cosine_window", "torch.signal.windows.cosine(n, dtype=like.dtype)", "scipy.signal.windows.cosine(n)", 3
    ),
    _define_window(
        "nuttall_window", "torch.signal.windows.nuttall(n, dtype=like.dtype)", "scipy.signal.windows.nuttall(n)", 8
    ),
    _define_window(
        "exponential_window",
        "torch.signal.windows.exponential(n, tau=n / 8, dtype=like.dtype)",
        "scipy.signal.windows.exponential(n, tau=n / 8)",
        4,
    ),
    # copied and composed
    _define_copy("clone", reference="np.copy", sizes=make_square(), backward_bytes=0.0),
    _define_copy(
        "clone_channels_last",
        "torch.clone(data, memory_format=torch.channels_last)",
        "np.moveaxis(np.moveaxis(data, 1, -1).copy(), -1, 1)",
        make_images(),
        backward_bytes=0.0,
    ),
    _define_copy(
        "complex",
        reference="real + 1j * imaginary",
        sizes=_make_parts("real", "imaginary", uniform(-1, 1)),
        backward_flops=0.0,
        backward_bytes=0.0,
        **WIDE_DTYPES,
    ),
    _define_copy(
        "polar",
        reference="magnitude * np.exp(1j * angle)",
        sizes=_make_parts("magnitude", "angle", uniform(0.5, 3.0)),
        flops=4,
        **WIDE_DTYPES,
    ),
    _define_copy("vander", sizes=_POINT_INPUTS, attributes={"n": 8}, flops=1, **NO_GRADIENT),
    # in place
    _define_inplace(
        "inplace_fill",
        "data.fill_(value)",
        "(data.fill(value), data)[1]",
        make_square(),
        attributes={"value": 0.5},
        aliases=("fill_",),
    ),
    _define_inplace("inplace_zero", "data.zero_()", "(data.fill(0), data)[1]", make_square(), aliases=("zero_",)),
    _define_inplace(
        "inplace_copy",
        "data.copy_(source)",
        "(np.copyto(data, source), data)[1]",
        _TWO_MATRIX_INPUTS,
        aliases=("copy_",),
        moved=lambda call: 2.0 * count_written_bytes(call),
    ),
    _define_inplace(
        "inplace_copy_transposed",
        "data.copy_(source.t())",
        "(np.copyto(data, source.T), data)[1]",
        _TWO_MATRIX_INPUTS,
        moved=lambda call: 2.0 * count_written_bytes(call),
    ),
)
