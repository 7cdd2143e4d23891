"""Losses by margins: of scores, of pairs and of triplets."""

from __future__ import annotations

from tessera.operators.catalogue.loss import OFF_GRID, SQUARES, Sizes, alike, labelled, loss
from tessera.operators.draws import Draw, integers, signs
from tessera.operators.operator import Input, by_size


def _vectors(*names: str, pair: bool = False) -> Sizes:
    """Rows of features, and for pairs whether they belong together."""

    def inputs(n: int, features: int) -> dict[str, Input]:
        rows = {name: Input(shape=(n, features)) for name in names}
        return {**rows, "target": Input(shape=(n,), draw=signs, grad=False)} if pair else rows

    return by_size(inputs, *SQUARES)


# for each row some of the labels, in any order, then -1
SOME_LABELS = Draw("np.where(np.arange(shape[1]) < shape[1] // 8, rng.random(shape).argsort(-1), -1)")
# scores whose differences are never near one, where a margin has its kink
STEPPED = Draw("0.15 * rng.integers(-20, 21, shape)")

OPERATORS = (
    loss(
        "hinge_embedding_loss",
        "F.hinge_embedding_loss(data, target, margin=margin)",
        "np.mean(np.where(target > 0, data, np.maximum(margin - data, 0.0)))",
        alike(OFF_GRID, signs, grad=False),
        3.0,
        attributes={"margin": 1.0},
    ),
    loss(
        "soft_margin_loss",
        "F.soft_margin_loss(data, target)",
        "np.mean(np.logaddexp(0.0, -target * data))",
        alike(target=signs, grad=False),
        4.0,
    ),
    loss(
        "margin_ranking_loss",
        "F.margin_ranking_loss(lhs, rhs, target, margin=margin)",
        "np.mean(np.maximum(margin - target * (lhs - rhs), 0.0))",
        by_size(
            lambda n: {
                "lhs": Input(shape=(n,), draw=OFF_GRID),
                "rhs": Input(shape=(n,), draw=integers(3, low=-3)),
                "target": Input(shape=(n,), draw=signs, grad=False),
            },
            4096,
            1 << 20,
            1 << 24,
        ),
        5.0,
        attributes={"margin": 1.0},
    ),
    loss(
        "triplet_margin_loss",
        "F.triplet_margin_loss(anchor, positive, negative, margin=margin)",
        "ref.triplet_margin_loss(anchor, positive, negative, margin)",
        _vectors("anchor", "positive", "negative"),
        8.0,
        attributes={"margin": 1.0},
    ),
    loss(
        "cosine_embedding_loss",
        "F.cosine_embedding_loss(lhs, rhs, target, margin=margin)",
        "ref.cosine_embedding_loss(lhs, rhs, target, margin)",
        _vectors("lhs", "rhs", pair=True),
        6.0,
        attributes={"margin": 0.0},
    ),
    loss(
        "multi_margin_loss",
        "F.multi_margin_loss(data, target, margin=margin)",
        "ref.multi_margin_loss(data, target, margin)",
        labelled(STEPPED),
        4.0,
        attributes={"margin": 1.0},
        dtypes=("float32", "float64"),
    ),
    loss(
        "multilabel_margin_loss",
        "F.multilabel_margin_loss(data, target)",
        "ref.multilabel_margin_loss(data, target)",
        by_size(
            lambda n, classes: {
                "data": Input(shape=(n, classes), draw=STEPPED),
                "target": Input(shape=(n, classes), kind="int64", draw=SOME_LABELS),
            },
            (32, 128),
            (512, 128),
            (2048, 512),
        ),
        16.0,
        dtypes=("float32", "float64"),
    ),
    loss(
        "multilabel_soft_margin_loss",
        "F.multilabel_soft_margin_loss(data, target)",
        "np.mean(np.logaddexp(0.0, -data) * target + np.logaddexp(0.0, data) * (1.0 - target))",
        alike(target=integers(2), grad=False),
        8.0,
    ),
)
