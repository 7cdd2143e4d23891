"""Making tensors: filled, counted, copied, windows.

An operator without tensor inputs takes its shape and dtype from an input named `like`, which it does not read: so
`--input like=(512,512)` sets the shape and `--dtype` the dtype, as with any other operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, images, square
from tessera.operators.draws import Draw, constant, integers, uniform
from tessera.operators.operator import Call, Input, Operator, Shape, by_size
from tessera.operators.work import nothing_moved, per_output

ONE = constant(1.0)


def written(call: Call) -> float:
    """Bytes of an operator that reads nothing."""
    return float(sum(call.written))


def _side(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"n": shapes["like"][0]}


def _size(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": shapes["like"]}


def _vector(*counts: int) -> Sizes:
    return by_size(lambda n: {"like": Input(shape=(n,), draw=ONE)}, *counts)


_MATRIX = by_size(lambda n: {"like": Input(shape=(n, n), draw=ONE)}, 64, 1024, 4096)
_RANGE = _vector(2**12, 2**20, 2**24)
_ONE = _vector(1, 1, 1)
_SPARSE = by_size(
    lambda n: {
        "index": Input(shape=(2, n), kind="int64", draw=integers(n // 4)),
        "data": Input(shape=(n,), grad=False),
    },
    256,
    2**12,
    2**14,
)
_SIDE = _vector(64, 1024, 4096)
_WINDOW = _vector(512, 2**16, 2**20)
_LIST = _vector(16, 2**12, 2**18)


def _made(name: str, torch: str, reference: str, sizes: Sizes = _MATRIX, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"attributes": _size, "moved": written, **NO_GRADIENT, **rest}
    return Operator(name=name, category="creation", torch=torch, reference=reference, sizes=sizes, **settings)


def _counted(name: str, torch: str, reference: str, sizes: Sizes = _RANGE, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"attributes": _side, **rest}
    return _made(name, torch, reference, sizes, **settings)


def _window(name: str, torch: str, reference: str, flops: float) -> Operator:
    """A window of `n` points, symmetric."""
    return _counted(name, torch, reference, _WINDOW, flops=per_output(flops), **WIDE)


def _copied(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    return Operator(name=name, category="creation", torch=torch, reference=reference, sizes=sizes, **rest)


def _parts(first: str, second: str, draw: Draw) -> Sizes:
    return by_size(
        lambda n: {first: Input(shape=(n, n), draw=draw), second: Input(shape=(n, n), draw=draw)}, 64, 1024, 2048
    )


_OTHER = by_size(lambda n: {"data": Input(shape=(n, n)), "source": Input(shape=(n, n))}, 64, 1024, 4096)
_POINTS = by_size(lambda n: {"data": Input(shape=(n,), draw=uniform(0.5, 1.0))}, 64, 2**16, 2**20)

OPERATORS = (
    # filled
    _made("zeros", "torch.zeros(size, dtype=like.dtype)", "np.zeros(size, like.dtype)"),
    _made("ones", "torch.ones(size, dtype=like.dtype)", "np.ones(size, like.dtype)"),
    _made("full", "torch.full(size, 0.5, dtype=like.dtype)", "np.full(size, 0.5, like.dtype)"),
    _made(
        "empty", "torch.empty(size, dtype=like.dtype)", "np.empty(size, like.dtype)", check="shape", moved=nothing_moved
    ),
    _made("zeros_like", "torch.zeros_like(like)", "np.zeros_like(like)"),
    _made("ones_like", "torch.ones_like(like)", "np.ones_like(like)"),
    _made("full_like", "torch.full_like(like, 0.5)", "np.full_like(like, 0.5)"),
    _made("empty_like", "torch.empty_like(like)", "np.empty_like(like)", check="shape", moved=nothing_moved),
    _made("new_zeros", "like.new_zeros(size)", "np.zeros(size, like.dtype)"),
    _made("new_ones", "like.new_ones(size)", "np.ones(size, like.dtype)"),
    _made("new_empty", "like.new_empty(size)", "np.empty(size, like.dtype)", check="shape", moved=nothing_moved),
    _made("new_full", "like.new_full(size, 0.5)", "np.full(size, 0.5, like.dtype)"),
    _made(
        "empty_strided",
        "torch.empty_strided(size, (1, size[0]), dtype=like.dtype)",
        "np.empty(size, like.dtype, order='F')",
        check="shape",
        moved=nothing_moved,
    ),
    _made(
        "empty_permuted",
        "torch.empty_permuted(size, (1, 0), dtype=like.dtype)",
        "np.empty(size, like.dtype, order='F')",
        check="shape",
        moved=nothing_moved,
    ),
    _made(
        "scalar_tensor", "torch.scalar_tensor(0.5, dtype=like.dtype)", "np.array(0.5, like.dtype)", _ONE, attributes={}
    ),
    _made(
        "sparse_coo_tensor",
        "torch.sparse_coo_tensor(index, data, size)",
        "ref.added(np.zeros(size), tuple(index), data)",
        _SPARSE,
        attributes=lambda shapes: {"size": (shapes["data"][0] // 4,) * 2},
        moved=lambda call: float(call.read["index"]),
    ),
    _counted("eye", "torch.eye(n, dtype=like.dtype)", "np.eye(n, dtype=like.dtype)", _SIDE),
    # counted
    _counted("arange", "torch.arange(n)", "np.arange(n)"),
    _counted("arange_float", "torch.arange(n, dtype=like.dtype)", "np.arange(n, dtype=like.dtype)", **WIDE),
    _counted(
        "linspace",
        "torch.linspace(0.0, 1.0, n, dtype=like.dtype)",
        "np.linspace(0.0, 1.0, n, dtype=like.dtype)",
        dtypes=("float32", "float64", "bfloat16"),
    ),
    _counted(
        "logspace",
        "torch.logspace(-2.0, 2.0, n, dtype=like.dtype)",
        "np.logspace(-2.0, 2.0, n, dtype=like.dtype)",
        flops=per_output(),
        **WIDE,
    ),
    _counted("tril_indices", "torch.tril_indices(n, n)", "np.stack(np.tril_indices(n))", _SIDE),
    _counted("triu_indices", "torch.triu_indices(n, n)", "np.stack(np.triu_indices(n))", _SIDE),
    _counted(
        "tensor",
        "torch.tensor(values, dtype=like.dtype)",
        "np.array(values, like.dtype)",
        _LIST,
        attributes=lambda shapes: {"values": [k / 8 for k in range(shapes["like"][0])]},
    ),
    # windows
    _window("hann_window", "torch.hann_window(n, False, dtype=like.dtype)", "np.hanning(n)", 3),
    _window("hamming_window", "torch.hamming_window(n, False, dtype=like.dtype)", "np.hamming(n)", 3),
    _window("blackman_window", "torch.blackman_window(n, False, dtype=like.dtype)", "np.blackman(n)", 6),
    _window("bartlett_window", "torch.bartlett_window(n, False, dtype=like.dtype)", "np.bartlett(n)", 3),
    _window("kaiser_window", "torch.kaiser_window(n, False, 12.0, dtype=like.dtype)", "np.kaiser(n, 12.0)", 6),
    _window(
        "gaussian_window",
        "torch.signal.windows.gaussian(n, std=n / 6, dtype=like.dtype)",
        "scipy.signal.windows.gaussian(n, n / 6)",
        4,
    ),
    _window("cosine_window", "torch.signal.windows.cosine(n, dtype=like.dtype)", "scipy.signal.windows.cosine(n)", 3),
    _window(
        "nuttall_window", "torch.signal.windows.nuttall(n, dtype=like.dtype)", "scipy.signal.windows.nuttall(n)", 8
    ),
    _window(
        "exponential_window",
        "torch.signal.windows.exponential(n, tau=n / 8, dtype=like.dtype)",
        "scipy.signal.windows.exponential(n, tau=n / 8)",
        4,
    ),
    # copied and composed
    _copied("clone", "torch.clone(data)", "np.copy(data)", square(), backward_bytes=0.0),
    _copied(
        "clone_channels_last",
        "torch.clone(data, memory_format=torch.channels_last)",
        "np.moveaxis(np.moveaxis(data, 1, -1).copy(), -1, 1)",
        images(),
        backward_bytes=0.0,
    ),
    _copied(
        "complex",
        "torch.complex(real, imaginary)",
        "real + 1j * imaginary",
        _parts("real", "imaginary", uniform(-1, 1)),
        backward_flops=0.0,
        backward_bytes=0.0,
        **WIDE,
    ),
    _copied(
        "polar",
        "torch.polar(magnitude, angle)",
        "magnitude * np.exp(1j * angle)",
        _parts("magnitude", "angle", uniform(0.5, 3.0)),
        flops=per_output(4),
        **WIDE,
    ),
    _copied(
        "vander",
        "torch.vander(data, n)",
        "np.vander(data, n)",
        _POINTS,
        attributes={"n": 8},
        flops=per_output(),
        **NO_GRADIENT,
    ),
    # in place
    _copied(
        "inplace_fill",
        "data.fill_(value)",
        "(data.fill(value), data)[1]",
        square(),
        attributes={"value": 0.5},
        moved=written,
        aliases=("fill_",),
        **NO_GRADIENT,
    ),
    _copied(
        "inplace_zero",
        "data.zero_()",
        "(data.fill(0), data)[1]",
        square(),
        moved=written,
        aliases=("zero_",),
        **NO_GRADIENT,
    ),
    _copied(
        "inplace_copy",
        "data.copy_(source)",
        "(np.copyto(data, source), data)[1]",
        _OTHER,
        aliases=("copy_",),
        moved=lambda call: 2.0 * written(call),
        **NO_GRADIENT,
    ),
    _copied(
        "inplace_copy_transposed",
        "data.copy_(source.t())",
        "(np.copyto(data, source.T), data)[1]",
        _OTHER,
        moved=lambda call: 2.0 * written(call),
        **NO_GRADIENT,
    ),
)
