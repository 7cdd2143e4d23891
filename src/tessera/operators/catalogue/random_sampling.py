"""Random numbers: drawn into a new tensor, like another, in place, and dropout.

Outputs are held against the mean and deviation of the reference's own draws; distributions without them, and those
whose values depend on one another, by their shape. The shape of a new tensor is that of an input named `like`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.creation import written
from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, square
from tessera.operators.draws import constant, integers, probabilities, uniform
from tessera.operators.operator import Input, Operator, Shape, by_size
from tessera.operators.work import per_output


def _random(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"check": "moments", **WIDE, **NO_GRADIENT, **rest}
    return Operator(name=name, category="random", torch=torch, reference=reference, sizes=sizes, **settings)


def _size(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return {"size": shapes["like"]}


_LIKE = by_size(lambda n: {"like": Input(shape=(n, n), draw=constant(1.0))}, 64, 1024, 4096)
_COUNT = by_size(lambda n: {"like": Input(shape=(n,), draw=constant(1.0))}, 2**12, 2**18, 2**22)


def _new(name: str, torch: str, reference: str, sizes: Sizes = _LIKE, **rest: Any) -> Operator:
    """A new tensor of a shape."""
    settings: dict[str, Any] = {"attributes": _size, "moved": written, **rest}
    return _random(name, torch, reference, sizes, **settings)


def _inplace(name: str, torch: str, reference: str, **rest: Any) -> Operator:
    """Random numbers written over `data`."""
    return _random(f"inplace_{name}", torch, reference, square(), moved=written, aliases=(f"{name}_",), **rest)


_DROPPED = {"attributes": {"p": 0.1}, "differentiable": True, "flops": per_output(2)}
_PLANES = by_size(lambda n, c: {"data": Input(shape=(n, c, 8, 8))}, (4, 16), (64, 256), (256, 512))
_VOLUMES = by_size(lambda n, c: {"data": Input(shape=(n, c, 4, 4, 4))}, (4, 16), (64, 256), (256, 512))
_SEQUENCES = by_size(lambda n, c: {"data": Input(shape=(n, c, 16))}, (4, 64), (64, 1024), (256, 2048))
_NORMALS = by_size(
    lambda n: {
        "mean": Input(shape=(n, n), draw=uniform(-1.0, 1.0)),
        "std": Input(shape=(n, n), draw=uniform(0.5, 1.5)),
    },
    64,
    1024,
    4096,
)
_TRIALS = by_size(
    lambda n: {
        "count": Input(shape=(n, n), draw=integers(20, low=5)),
        "prob": Input(shape=(n, n), draw=uniform(0.2, 0.8)),
    },
    32,
    128,
    1024,
)
_CHANCES = by_size(lambda n, m: {"data": Input(shape=(n, m), draw=probabilities)}, (4, 256), (64, 4096), (256, 2**14))

OPERATORS = (
    _new("rand", "torch.rand(size, dtype=like.dtype)", "np.random.random(size)"),
    _new("randn", "torch.randn(size, dtype=like.dtype)", "np.random.standard_normal(size)"),
    _new("randint", "torch.randint(0, 100, size)", "np.random.randint(0, 100, size)"),
    _new("randperm", "torch.randperm(*size)", "np.random.permutation(*size)", _COUNT),
    _new("rand_like", "torch.rand_like(like)", "np.random.random(like.shape)"),
    _new("randn_like", "torch.randn_like(like)", "np.random.standard_normal(like.shape)"),
    _new("randint_like", "torch.randint_like(like, 0, 100)", "np.random.randint(0, 100, like.shape)"),
    _random("normal", "torch.normal(mean, std)", "np.random.normal(mean, std)", _NORMALS, flops=per_output(2)),
    _random("bernoulli", "torch.bernoulli(data)", "np.random.binomial(1, data)", square(uniform(0.1, 0.9))),
    _random(
        "poisson",
        "torch.poisson(data)",
        "np.random.poisson(data)",
        by_size(lambda n: {"data": Input(shape=(n, n), draw=uniform(0.5, 8.0))}, 64, 512, 2048),
    ),
    _random("binomial", "torch.binomial(count, prob)", "ref.binomial(count, prob)", _TRIALS),
    _random(
        "multinomial",
        "torch.multinomial(data, num_samples, replacement=True)",
        "ref.multinomial(data, num_samples)",
        _CHANCES,
        attributes={"num_samples": 1024},
    ),
    _random(
        "multinomial_once",
        "torch.multinomial(data, num_samples)",
        "ref.multinomial_once(data, num_samples)",
        _CHANCES,
        attributes={"num_samples": 64},
    ),
    # in place
    _inplace("uniform", "data.uniform_(-1, 1)", "np.random.uniform(-1, 1, data.shape)"),
    _inplace("normal", "data.normal_(1, 2)", "np.random.normal(1, 2, data.shape)"),
    _inplace("random", "data.random_(0, 100)", "np.random.randint(0, 100, data.shape)"),
    _inplace("bernoulli", "data.bernoulli_(0.3)", "np.random.binomial(1, 0.3, data.shape)"),
    _inplace("exponential", "data.exponential_(2)", "np.random.exponential(0.5, data.shape)"),
    _inplace("geometric", "data.geometric_(0.3)", "np.random.geometric(0.3, data.shape)"),
    _inplace("log_normal", "data.log_normal_(0, 0.25)", "np.random.lognormal(0, 0.25, data.shape)"),
    _inplace("cauchy", "data.cauchy_()", "np.random.standard_cauchy(data.shape)", check="shape"),
    _inplace(
        "xavier_uniform",
        "torch.nn.init.xavier_uniform_(data)",
        "np.random.uniform(-1, 1, data.shape) * (6 / sum(data.shape)) ** 0.5",
    ),
    _inplace(
        "kaiming_normal",
        "torch.nn.init.kaiming_normal_(data)",
        "np.random.standard_normal(data.shape) * (2 / data.shape[1]) ** 0.5",
    ),
    _inplace(
        "trunc_normal",
        "torch.nn.init.trunc_normal_(data)",
        "ref.truncated_normal(data.shape)",
    ),
    # dropout
    _random("dropout", "F.dropout(data, p)", "ref.dropout(data, p)", square(), **_DROPPED),
    _random("dropout1d", "F.dropout1d(data, p)", "ref.dropout(data, p, whole=1)", _SEQUENCES, **_DROPPED),
    _random("dropout2d", "F.dropout2d(data, p)", "ref.dropout(data, p, whole=2)", _PLANES, **_DROPPED),
    _random("dropout3d", "F.dropout3d(data, p)", "ref.dropout(data, p, whole=3)", _VOLUMES, **_DROPPED),
    _random(
        "alpha_dropout", "F.alpha_dropout(data, p, training=True)", "ref.alpha_dropout(data, p)", square(), **_DROPPED
    ),
    _random(
        "feature_alpha_dropout",
        "F.feature_alpha_dropout(data, p, training=True)",
        "ref.alpha_dropout(data, p, whole=2)",
        _PLANES,
        check="shape",
        **_DROPPED,
    ),
)
