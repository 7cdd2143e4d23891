"""Loss functions: distances, classes, probabilities, sequences and margins; each returns the mean over the batch."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.catalogue.families import LINEAR_GRADIENT, NO_FLOAT16, WIDE_DTYPES, Sizes, define_family
from tessera.operators.draws import Draw, between_multiples, integers, normal, probabilities, signs, uniform
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes

SQUARE_SCALES = ((64, 64), (1024, 1024), (4096, 4096))
CLASS_SCALES = ((32, 128), (1024, 1000), (4096, 4096))
LABEL_MAP_SCALES = ((1, 8, 20), (2, 21, 128), (8, 21, 512))
PROBABILITY_VALUES = uniform(0.05, 0.95)
# never near an integer: targets are integers, and losses such as L1 are not differentiable at equal values
BETWEEN_INTEGERS = between_multiples(-3, 3)
CLASS_COUNT = "shapes['data'][1]"  # number of classes: the second dim of the scores


_define_any_loss = define_family("loss", libraries=("F", "ref"), keywords=True, **LINEAR_GRADIENT, **NO_FLOAT16)


def _define_loss(name: str, sizes: Sizes, per_value: float, **rest: Any) -> Operator:
    """Define a loss with `per_value` FLOPs per element of its first input, in the forward and in the backward pass."""
    return _define_any_loss(name, sizes=sizes, flops=per_value, flops_of=next(iter(sizes["small"])), **rest)


def _make_pair(data: Draw = normal, target: Draw = normal, grad: bool = True, **extra_inputs: Draw) -> Sizes:
    """Make predictions `data`, `target` and `extra_inputs`, all of the same shape."""
    return make_sizes(
        lambda *shape: {
            "data": Input(shape, data),
            "target": Input(shape, target, grad=grad),
            **{name: Input(shape, draw) for name, draw in extra_inputs.items()},
        },
        *SQUARE_SCALES,
    )


def _make_labelled(data: Draw = normal, weight: bool = False) -> Sizes:
    """Make scores for every sample and class, and the labels of the samples."""

    def build_inputs(n: int, classes: int) -> dict[str, Input]:
        return {
            "data": Input((n, classes), data),
            "target": Input((n,), integers(CLASS_COUNT), "int64"),
            **({"weight": Input((classes,), uniform(0.5, 1.5), grad=False)} if weight else {}),
        }

    return make_sizes(build_inputs, *CLASS_SCALES)


def _make_labelled_map(n: int, classes: int, side: int) -> dict[str, Input]:
    """Make scores (n, classes, side, side) and the labels of the pixels."""
    return {"data": Input((n, classes, side, side)), "target": Input((n, side, side), integers(CLASS_COUNT), "int64")}


def _count_label_bytes(call: OperatorCall) -> float:
    """Count the bytes of the labels and of one score per label."""
    score = call.read["data"] / math.prod(call.shapes["data"])
    return call.read["target"] + score * math.prod(call.shapes["target"])


def _make_sequences(time: int, n: int, classes: int, length: int) -> dict[str, Input]:
    """Make scores (time, n, classes) and target label sequences of `length`; class 0 is the blank."""
    return {"data": Input((time, n, classes)), "target": Input((n, length), integers(classes, low=1), "int64")}


_DISTANCE_OPERATORS = (
    _define_loss("mse_loss", _make_pair(), 3.0, reference="np.mean(np.square(data - target))"),
    _define_loss(
        "l1_loss", _make_pair(BETWEEN_INTEGERS, integers(3, low=-3)), 3.0, reference="np.mean(np.abs(data - target))"
    ),
    _define_loss(
        "smooth_l1_loss",
        _make_pair(),
        5.0,
        reference="ref.huber_loss(data, target, beta) / beta",
        attributes={"beta": 0.5},
    ),
    _define_loss("huber_loss", _make_pair(), 5.0, attributes={"delta": 0.5}),
)

_CLASS_OPERATORS = (
    _define_loss("cross_entropy", _make_labelled(), 4.0),
    _define_loss(
        "cross_entropy_label_smoothing",
        _make_labelled(),
        5.0,
        function="cross_entropy",
        attributes={"label_smoothing": 0.1},
    ),
    _define_loss("cross_entropy_probabilities", _make_pair(target=probabilities), 6.0, function="cross_entropy"),
    _define_loss("cross_entropy_weighted", _make_labelled(weight=True), 4.0, function="cross_entropy"),
    _define_loss("cross_entropy_2d", make_sizes(_make_labelled_map, *LABEL_MAP_SCALES), 4.0, function="cross_entropy"),
    _define_any_loss(
        "linear_cross_entropy",
        reference="ref.cross_entropy(np.matmul(data, weight.T), target)",
        sizes=make_sizes(
            lambda n, features, classes: {
                "data": Input((n, features)),
                "weight": Input((classes, features), uniform(-0.1, 0.1)),
                "target": Input((n,), integers("shapes['weight'][0]"), "int64"),
            },
            (16, 32, 64),
            (256, 256, 1000),
            (512, 512, 32000),
        ),
        flops=lambda call: 2.0 * math.prod(call.shapes["data"]) * call.shapes["weight"][0],
        backward_flops=2.0,
    ),
    *(
        # nll_loss reads one score per label; writing the zero gradients of the other scores is not counted
        _define_loss(name, sizes, 0.0, function="nll_loss", moved=_count_label_bytes, backward_bytes=0.0)
        for name, sizes in (
            ("nll_loss", _make_labelled()),
            ("nll_loss_2d", make_sizes(_make_labelled_map, *LABEL_MAP_SCALES)),
        )
    ),
)

_PROBABILITY_OPERATORS = (
    _define_loss(
        "binary_cross_entropy",
        _make_pair(PROBABILITY_VALUES, PROBABILITY_VALUES),
        7.0,
        reference="-np.mean(target * np.log(data) + (1.0 - target) * np.log(1.0 - data))",
    ),
    _define_loss(
        "binary_cross_entropy_with_logits",
        _make_pair(target=PROBABILITY_VALUES),
        6.0,
        reference="np.mean(np.logaddexp(0.0, data) - data * target)",
    ),
    _define_loss(
        "binary_cross_entropy_pos_weight",
        make_sizes(
            lambda n, k: {
                "data": Input((n, k)),
                "target": Input((n, k), PROBABILITY_VALUES),
                "weight": Input((k,), uniform(0.5, 2.0), grad=False),
            },
            *SQUARE_SCALES,
        ),
        8.0,
        reference="np.mean(np.logaddexp(0.0, -data) * target * weight + np.logaddexp(0.0, data) * (1.0 - target))",
        torch="F.binary_cross_entropy_with_logits(data, target, pos_weight=weight)",
    ),
    _define_loss(
        "kl_div",
        _make_pair(target=probabilities),
        4.0,
        reference="np.sum(target * (np.log(target) - data)) / len(data)",
        torch="F.kl_div(data, target, reduction='batchmean')",
    ),
    _define_loss(
        "kl_div_log_target",
        _make_pair(uniform(-9.0, -5.0), uniform(-8.0, -6.0)),
        4.0,
        reference="np.sum(np.exp(target) * (target - data)) / len(data)",
        torch="F.kl_div(data, target, reduction='batchmean', log_target=True)",
    ),
    _define_loss(
        "poisson_nll_loss",
        _make_pair(target=integers(5), grad=False),
        4.0,
        reference="np.mean(np.exp(data) - target * data)",
    ),
    _define_loss(
        "gaussian_nll_loss",
        _make_pair(variance=uniform(0.5, 2.0)),
        7.0,
        reference="np.mean(0.5 * (np.log(variance) + np.square(data - target) / variance))",
    ),
)

_SEQUENCE_OPERATORS = (
    _define_loss(
        "ctc_loss",
        make_sizes(_make_sequences, (16, 2, 32, 4), (200, 8, 64, 30), (500, 64, 128, 80)),
        10.0,
        reference="ref.ctc_loss(data, target)",
        # the gradient is defined for normalised scores, so the operator includes the normalisation
        torch="F.ctc_loss(F.log_softmax(data, -1), target, input_lengths, target_lengths)",
        attributes=lambda shapes: {
            "input_lengths": (shapes["data"][0],) * shapes["data"][1],
            "target_lengths": (shapes["target"][1],) * shapes["data"][1],
        },
        **WIDE_DTYPES,
    ),
)


def _make_vectors(*names: str, pair: bool = False) -> Sizes:
    """Make inputs (n, features) for each name; with `pair`, also a target of 1 or -1 per row (similar or not)."""

    def build_inputs(n: int, features: int) -> dict[str, Input]:
        rows = {name: Input((n, features)) for name in names}
        return {**rows, "target": Input((n,), signs, grad=False)} if pair else rows

    return make_sizes(build_inputs, *SQUARE_SCALES)


# each row has random distinct labels, then -1 to the end
MULTI_LABEL_VALUES = Draw("np.where(np.arange(shape[1]) < shape[1] // 8, rng.random(shape).argsort(-1), -1)")
# scores whose differences are never near one, where a margin loss is not differentiable
STEPPED_VALUES = Draw("0.15 * rng.integers(-20, 21, shape)")

_MARGIN_OPERATORS = (
    _define_loss(
        "hinge_embedding_loss",
        _make_pair(BETWEEN_INTEGERS, signs, grad=False),
        3.0,
        reference="np.mean(np.where(target > 0, data, np.maximum(margin - data, 0.0)))",
        attributes={"margin": 1.0},
    ),
    _define_loss(
        "soft_margin_loss",
        _make_pair(target=signs, grad=False),
        4.0,
        reference="np.mean(np.logaddexp(0.0, -target * data))",
    ),
    _define_loss(
        "margin_ranking_loss",
        make_sizes(
            lambda n: {
                "lhs": Input((n,), BETWEEN_INTEGERS),
                "rhs": Input((n,), integers(3, low=-3)),
                "target": Input((n,), signs, grad=False),
            },
            4096,
            1 << 20,
            1 << 24,
        ),
        5.0,
        reference="np.mean(np.maximum(margin - target * (lhs - rhs), 0.0))",
        attributes={"margin": 1.0},
    ),
    _define_loss(
        "triplet_margin_loss", _make_vectors("anchor", "positive", "negative"), 8.0, attributes={"margin": 1.0}
    ),
    _define_loss("cosine_embedding_loss", _make_vectors("lhs", "rhs", pair=True), 6.0, attributes={"margin": 0.0}),
    _define_loss("multi_margin_loss", _make_labelled(STEPPED_VALUES), 4.0, attributes={"margin": 1.0}, **WIDE_DTYPES),
    _define_loss(
        "multilabel_margin_loss",
        make_sizes(
            lambda n, classes: {
                "data": Input((n, classes), STEPPED_VALUES),
                "target": Input((n, classes), MULTI_LABEL_VALUES, "int64"),
            },
            (32, 128),
            (512, 128),
            (2048, 512),
        ),
        16.0,
        **WIDE_DTYPES,
    ),
    _define_loss(
        "multilabel_soft_margin_loss",
        _make_pair(target=integers(2), grad=False),
        8.0,
        reference="np.mean(np.logaddexp(0.0, -data) * target + np.logaddexp(0.0, data) * (1.0 - target))",
    ),
)

OPERATORS = (*_DISTANCE_OPERATORS, *_CLASS_OPERATORS, *_PROBABILITY_OPERATORS, *_SEQUENCE_OPERATORS, *_MARGIN_OPERATORS)
