"""Random values: in a new tensor or in place, and dropout.

The mean and standard deviation of the outputs are compared with the reference. For distributions without these moments,
and for dependent values, only shapes are compared. A new tensor has the shape of an input named `like`.
"""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.creation import count_written_bytes, get_size
from tessera.operators.catalogue.families import MATRIX_SIDES, NO_GRADIENT, WIDE_DTYPES, define_family, make_square
from tessera.operators.draws import constant, integers, probabilities, uniform
from tessera.operators.operator import Input, Operator, make_sizes

_define_random = define_family("random", check="moments", **WIDE_DTYPES, **NO_GRADIENT)


_LIKE_MATRIX_INPUTS = make_sizes(lambda n: {"like": Input((n, n), constant(1.0))}, *MATRIX_SIDES)
_LIKE_VECTOR_INPUTS = make_sizes(lambda n: {"like": Input((n,), constant(1.0))}, 2**12, 2**18, 2**22)


_define_creation = define_family(
    "random",
    default_sizes=_LIKE_MATRIX_INPUTS,
    attributes=get_size,
    moved=count_written_bytes,
    check="moments",
    **WIDE_DTYPES,
    **NO_GRADIENT,
)


def _define_inplace(name: str, torch: str, reference: str, **rest: Any) -> Operator:
    """Define an in-place operator that overwrites `data` with random numbers."""
    return _define_random(
        f"inplace_{name}", torch, reference, make_square(), moved=count_written_bytes, aliases=(f"{name}_",), **rest
    )


_DROPOUT_SETTINGS = {"attributes": {"p": 0.1}, "differentiable": True, "flops": 2}
_PLANE_INPUTS = make_sizes(lambda n, c: {"data": Input((n, c, 8, 8))}, (4, 16), (64, 256), (256, 512))
_VOLUME_INPUTS = make_sizes(lambda n, c: {"data": Input((n, c, 4, 4, 4))}, (4, 16), (64, 256), (256, 512))
_SEQUENCE_INPUTS = make_sizes(lambda n, c: {"data": Input((n, c, 16))}, (4, 64), (64, 1024), (256, 2048))
_NORMAL_INPUTS = make_sizes(
    lambda n: {"mean": Input((n, n), uniform(-1.0, 1.0)), "std": Input((n, n), uniform(0.5, 1.5))}, *MATRIX_SIDES
)
_BINOMIAL_INPUTS = make_sizes(
    lambda n: {"count": Input((n, n), integers(20, low=5)), "prob": Input((n, n), uniform(0.2, 0.8))}, 32, 128, 1024
)
_MULTINOMIAL_INPUTS = make_sizes(
    lambda n, m: {"data": Input((n, m), probabilities)}, (4, 256), (64, 4096), (256, 2**14)
)

OPERATORS = (
    _define_creation("rand", "torch.rand(size, dtype=like.dtype)", "np.random.random(size)"),
    _define_creation("randn", "torch.randn(size, dtype=like.dtype)", "np.random.standard_normal(size)"),
    _define_creation("randint", "torch.randint(0, 100, size)", "np.random.randint(0, 100, size)"),
    _define_creation("randperm", "torch.randperm(*size)", "np.random.permutation(*size)", _LIKE_VECTOR_INPUTS),
    _define_creation("rand_like", "torch.rand_like(like)", "np.random.random(like.shape)"),
    _define_creation("randn_like", "torch.randn_like(like)", "np.random.standard_normal(like.shape)"),
    _define_creation("randint_like", "torch.randint_like(like, 0, 100)", "np.random.randint(0, 100, like.shape)"),
    _define_random("normal", reference="np.random.normal", sizes=_NORMAL_INPUTS, flops=2),
    _define_random("bernoulli", reference="np.random.binomial(1, data)", sizes=make_square(uniform(0.1, 0.9))),
    _define_random(
        "poisson",
        reference="np.random.poisson",
        sizes=make_sizes(lambda n: {"data": Input((n, n), uniform(0.5, 8.0))}, 64, 512, 2048),
    ),
    _define_random("binomial", reference="ref.binomial", sizes=_BINOMIAL_INPUTS),
    _define_random(
        "multinomial",
        "torch.multinomial(data, num_samples, replacement=True)",
        "ref.multinomial",
        _MULTINOMIAL_INPUTS,
        attributes={"num_samples": 1024},
    ),
    _define_random(
        "multinomial_once",
        "torch.multinomial",
        "ref.multinomial_once",
        _MULTINOMIAL_INPUTS,
        attributes={"num_samples": 64},
    ),
    # in place
    _define_inplace("uniform", "data.uniform_(-1, 1)", "np.random.uniform(-1, 1, data.shape)"),
    _define_inplace("normal", "data.normal_(1, 2)", "np.random.normal(1, 2, data.shape)"),
    _define_inplace("random", "data.random_(0, 100)", "np.random.randint(0, 100, data.shape)"),
    _define_inplace("bernoulli", "data.bernoulli_(0.3)", "np.random.binomial(1, 0.3, data.shape)"),
    _define_inplace("exponential", "data.exponential_(2)", "np.random.exponential(0.5, data.shape)"),
    _define_inplace("geometric", "data.geometric_(0.3)", "np.random.geometric(0.3, data.shape)"),
    _define_inplace("log_normal", "data.log_normal_(0, 0.25)", "np.random.lognormal(0, 0.25, data.shape)"),
    _define_inplace("cauchy", "data.cauchy_()", "np.random.standard_cauchy(data.shape)", check="shape"),
    _define_inplace(
        "xavier_uniform",
        "torch.nn.init.xavier_uniform_(data)",
        "np.random.uniform(-1, 1, data.shape) * (6 / sum(data.shape)) ** 0.5",
    ),
    _define_inplace(
        "kaiming_normal",
        "torch.nn.init.kaiming_normal_(data)",
        "np.random.standard_normal(data.shape) * (2 / data.shape[1]) ** 0.5",
    ),
    _define_inplace("trunc_normal", "torch.nn.init.trunc_normal_(data)", "ref.truncated_normal(data.shape)"),
    # dropout
    _define_random("dropout", "F.dropout", "ref.dropout", make_square(), **_DROPOUT_SETTINGS),
    _define_random("dropout1d", "F.dropout1d", "ref.dropout(data, p, whole=1)", _SEQUENCE_INPUTS, **_DROPOUT_SETTINGS),
    _define_random("dropout2d", "F.dropout2d", "ref.dropout(data, p, whole=2)", _PLANE_INPUTS, **_DROPOUT_SETTINGS),
    _define_random("dropout3d", "F.dropout3d", "ref.dropout(data, p, whole=3)", _VOLUME_INPUTS, **_DROPOUT_SETTINGS),
    _define_random(
        "alpha_dropout",
        "F.alpha_dropout(data, p, training=True)",
        "ref.alpha_dropout",
        make_square(),
        **_DROPOUT_SETTINGS,
    ),
    _define_random(
        "feature_alpha_dropout",
        "F.feature_alpha_dropout(data, p, training=True)",
        "ref.alpha_dropout(data, p, whole=2)",
        _PLANE_INPUTS,
        check="shape",
        **_DROPOUT_SETTINGS,
    ),
)
