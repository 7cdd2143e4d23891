"""Losses; each gives the mean over its batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.draws import Draw, cells, integers, normal, probabilities, uniform
from tessera.operators.operator import Call, Input, Operator, by_size
from tessera.operators.work import per_input

Sizes = Mapping[str, Mapping[str, Input]]

SQUARES = ((64, 64), (1024, 1024), (4096, 4096))
CLASSES = ((32, 128), (1024, 1000), (4096, 4096))
MAPS = ((1, 8, 20), (2, 21, 128), (8, 21, 512))
PROBABILITY = uniform(0.05, 0.95)
# never near a whole number, where a loss of differences has its kink
OFF_GRID = cells(-3, 3)
CLASS = "shapes['data'][1]"  # as many as there are scores


def loss(name: str, torch: str, reference: str, sizes: Sizes, per_value: float, **others: Any) -> Operator:
    """A loss that computes so much for each value of its first input; the gradient takes about as much again."""
    first = next(iter(sizes["small"]))
    given: dict[str, Any] = {"flops": per_input(first, per_value), "backward_flops": 1.0, "backward_bytes": 1.0}
    # not float16, which the gradient of a mean over a million values is too small for
    given["dtypes"] = ("float32", "float64", "bfloat16")
    return Operator(
        name=name,
        category="loss",
        torch=torch,
        reference=reference,
        sizes=sizes,
        **(given | others),
    )


def alike(data: Draw = normal, target: Draw = normal, grad: bool = True, **more: Draw) -> Sizes:
    """Predictions, targets of the same shape, and what else has it."""
    return by_size(
        lambda *shape: {
            "data": Input(shape=shape, draw=data),
            "target": Input(shape=shape, draw=target, grad=grad),
            **{name: Input(shape=shape, draw=draw) for name, draw in more.items()},
        },
        *SQUARES,
    )


def labelled(data: Draw = normal, weight: bool = False) -> Sizes:
    """A score for every class, and the label."""

    def inputs(n: int, classes: int) -> dict[str, Input]:
        return {
            "data": Input(shape=(n, classes), draw=data),
            "target": Input(shape=(n,), kind="int64", draw=integers(CLASS)),
            **({"weight": Input(shape=(classes,), draw=uniform(0.5, 1.5), grad=False)} if weight else {}),
        }

    return by_size(inputs, *CLASSES)


def _labelled_map(n: int, classes: int, side: int) -> dict[str, Input]:
    """A score for every class at every pixel, and the pixels' labels."""
    return {
        "data": Input(shape=(n, classes, side, side)),
        "target": Input(shape=(n, side, side), kind="int64", draw=integers(CLASS)),
    }


def _labels_moved(call: Call) -> float:
    """Every label, and one score for each."""
    score = call.read["data"] / math.prod(call.shapes["data"])
    return call.read["target"] + score * math.prod(call.shapes["target"])


def _spoken(time: int, n: int, classes: int, length: int) -> dict[str, Input]:
    """Scores over time, and the labels to be spelled; class 0 is the blank."""
    return {
        "data": Input(shape=(time, n, classes)),
        "target": Input(shape=(n, length), kind="int64", draw=integers(classes, low=1)),
    }


_DISTANCES = (
    loss("mse_loss", "F.mse_loss(data, target)", "np.mean(np.square(data - target))", alike(), 3.0),
    loss(
        "l1_loss",
        "F.l1_loss(data, target)",
        "np.mean(np.abs(data - target))",
        alike(OFF_GRID, integers(3, low=-3)),
        3.0,
    ),
    loss(
        "smooth_l1_loss",
        "F.smooth_l1_loss(data, target, beta=beta)",
        "ref.huber_loss(data, target, beta) / beta",
        alike(),
        5.0,
        attributes={"beta": 0.5},
    ),
    loss(
        "huber_loss",
        "F.huber_loss(data, target, delta=delta)",
        "ref.huber_loss(data, target, delta)",
        alike(),
        5.0,
        attributes={"delta": 0.5},
    ),
)

_CLASSES = (
    loss("cross_entropy", "F.cross_entropy(data, target)", "ref.cross_entropy(data, target)", labelled(), 4.0),
    loss(
        "cross_entropy_label_smoothing",
        "F.cross_entropy(data, target, label_smoothing=label_smoothing)",
        "ref.cross_entropy(data, target, label_smoothing=label_smoothing)",
        labelled(),
        5.0,
        attributes={"label_smoothing": 0.1},
    ),
    loss(
        "cross_entropy_probabilities",
        "F.cross_entropy(data, target)",
        "ref.cross_entropy(data, target)",
        alike(target=probabilities),
        6.0,
    ),
    loss(
        "cross_entropy_weighted",
        "F.cross_entropy(data, target, weight)",
        "ref.cross_entropy(data, target, weight)",
        labelled(weight=True),
        4.0,
    ),
    loss(
        "cross_entropy_2d",
        "F.cross_entropy(data, target)",
        "ref.cross_entropy(data, target)",
        by_size(_labelled_map, *MAPS),
        4.0,
    ),
    loss(
        "linear_cross_entropy",
        "F.linear_cross_entropy(data, weight, target)",
        "ref.cross_entropy(np.matmul(data, weight.T), target)",
        by_size(
            lambda n, features, classes: {
                "data": Input(shape=(n, features)),
                "weight": Input(shape=(classes, features), draw=uniform(-0.1, 0.1)),
                "target": Input(shape=(n,), kind="int64", draw=integers("shapes['weight'][0]")),
            },
            (16, 32, 64),
            (256, 256, 1000),
            (512, 512, 32000),
        ),
        0.0,
        flops=lambda call: 2.0 * math.prod(call.shapes["data"]) * call.shapes["weight"][0],
        backward_flops=2.0,
    ),
    *(
        # it reads one score for each label; the gradient of all others is zero, whose writing is not counted
        loss(
            name,
            "F.nll_loss(data, target)",
            "ref.nll_loss(data, target)",
            sizes,
            0.0,
            moved=_labels_moved,
            backward_bytes=0.0,
        )
        for name, sizes in (("nll_loss", labelled()), ("nll_loss_2d", by_size(_labelled_map, *MAPS)))
    ),
)

_PROBABILITIES = (
    loss(
        "binary_cross_entropy",
        "F.binary_cross_entropy(data, target)",
        "-np.mean(target * np.log(data) + (1.0 - target) * np.log(1.0 - data))",
        alike(PROBABILITY, PROBABILITY),
        7.0,
    ),
    loss(
        "binary_cross_entropy_with_logits",
        "F.binary_cross_entropy_with_logits(data, target)",
        "np.mean(np.logaddexp(0.0, data) - data * target)",
        alike(target=PROBABILITY),
        6.0,
    ),
    loss(
        "binary_cross_entropy_pos_weight",
        "F.binary_cross_entropy_with_logits(data, target, pos_weight=weight)",
        "np.mean(np.logaddexp(0.0, -data) * target * weight + np.logaddexp(0.0, data) * (1.0 - target))",
        by_size(
            lambda n, k: {
                "data": Input(shape=(n, k)),
                "target": Input(shape=(n, k), draw=PROBABILITY),
                "weight": Input(shape=(k,), draw=uniform(0.5, 2.0), grad=False),
            },
            *SQUARES,
        ),
        8.0,
    ),
    loss(
        "kl_div",
        "F.kl_div(data, target, reduction='batchmean')",
        "np.sum(target * (np.log(target) - data)) / len(data)",
        alike(target=probabilities),
        4.0,
    ),
    loss(
        "kl_div_log_target",
        "F.kl_div(data, target, reduction='batchmean', log_target=True)",
        "np.sum(np.exp(target) * (target - data)) / len(data)",
        alike(uniform(-9.0, -5.0), uniform(-8.0, -6.0)),
        4.0,
    ),
    loss(
        "poisson_nll_loss",
        "F.poisson_nll_loss(data, target)",
        "np.mean(np.exp(data) - target * data)",
        alike(target=integers(5), grad=False),
        4.0,
    ),
    loss(
        "gaussian_nll_loss",
        "F.gaussian_nll_loss(data, target, variance)",
        "np.mean(0.5 * (np.log(variance) + np.square(data - target) / variance))",
        alike(variance=uniform(0.5, 2.0)),
        7.0,
    ),
)

_SEQUENCES = (
    loss(
        "ctc_loss",
        # its gradient is that of normalised scores alone, so the normalisation belongs to it
        "F.ctc_loss(F.log_softmax(data, -1), target, input_lengths, target_lengths)",
        "ref.ctc_loss(data, target)",
        by_size(_spoken, (16, 2, 32, 4), (200, 8, 64, 30), (500, 64, 128, 80)),
        10.0,
        attributes=lambda shapes: {
            "input_lengths": (shapes["data"][0],) * shapes["data"][1],
            "target_lengths": (shapes["target"][1],) * shapes["data"][1],
        },
        dtypes=("float32", "float64"),
    ),
)

OPERATORS = (*_DISTANCES, *_CLASSES, *_PROBABILITIES, *_SEQUENCES)
