"""Embeddings: rows of a table looked up, and bags of rows reduced to one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.draws import Draw, integers, normal, spaced
from tessera.operators.operator import Call, Input, Operator, Shape, by_size
from tessera.operators.work import outputs_moved

Sizes = Mapping[str, Mapping[str, Input]]

# (words, features, sentences or bags, words in each)
TABLES = ((64, 32, 8, 16), (10000, 256, 32, 128), (50000, 512, 128, 256))
DISTINCT = Draw(f"np.ascontiguousarray((lambda shape: {spaced.expression})(shape[::-1]).T)")


def _table(words: int, features: int, index: Shape, draw: Draw | None = None) -> dict[str, Input]:
    return {
        "index": Input(shape=index, kind="int64", draw=draw or integers("shapes['weight'][0]")),
        "weight": Input(shape=(words, features)),
    }


def _sentences(words: int, features: int, count: int, each: int) -> dict[str, Input]:
    return _table(words, features, (count, each))


def _frequent_words(words: int, features: int, count: int, each: int) -> dict[str, Input]:
    """Words as they occur in text: few of them very often."""
    return _table(words, features, (count, each), Draw(f"(rng.zipf(1.5, shape) - 1) % {words}"))


def _flat_bags(words: int, features: int, count: int, each: int) -> dict[str, Input]:
    """Bags one after the other, and where each starts."""
    starts = Input(shape=(count,), kind="int64", draw=Draw(f"{each} * np.arange(shape[0])"))
    return {**_table(words, features, (count * each,)), "offsets": starts}


def _weighted_bags(words: int, features: int, count: int, each: int) -> dict[str, Input]:
    return {**_sentences(words, features, count, each), "scale": Input(shape=(count, each), draw=normal)}


def _distinct_rows(words: int, features: int, count: int, each: int) -> dict[str, Input]:
    """A table whose rows differ in every feature, so that the largest of several is one of them."""
    return {**_sentences(words, features, count, each), "weight": Input(shape=(words, features), draw=DISTINCT)}


def _lookup(name: str, torch: str, inputs: Any, **others: Any) -> Operator:
    """A lookup copies the rows that it is asked for and computes nothing."""
    return Operator(
        name=name,
        category="embedding",
        torch=torch,
        reference="np.take(weight, index, axis=0)",
        sizes=by_size(inputs, *TABLES),
        moved=outputs_moved,
        backward_flops=0.0,
        **others,
    )


def _rows(call: Call) -> float:
    """One FLOP for every value of every row that goes into a bag."""
    return float(math.prod(call.shapes["index"]) * call.shapes["weight"][1])


def _rows_moved(call: Call) -> float:
    """Every row that goes into a bag is read, every bag written."""
    row = call.read["weight"] / call.shapes["weight"][0]
    return math.prod(call.shapes["index"]) * row + sum(call.written)


def _bag(name: str, torch: str, reference: str, inputs: Any, **others: Any) -> Operator:
    return Operator(
        name=name,
        category="embedding",
        torch=f"F.embedding_bag({torch})",
        reference=reference,
        sizes=by_size(inputs, *TABLES),
        flops=_rows,
        moved=_rows_moved,
        backward_flops=1.0,
        **others,
    )


OPERATORS = (
    _lookup("embedding", "F.embedding(index, weight)", _sentences),
    _lookup("embedding_frequent", "F.embedding(index, weight)", _frequent_words),
    _bag("embedding_bag", "index, weight, mode='sum'", "np.take(weight, index, axis=0).sum(axis=1)", _sentences),
    _bag("embedding_bag_mean", "index, weight, mode='mean'", "np.take(weight, index, axis=0).mean(axis=1)", _sentences),
    _bag(
        "embedding_bag_max",
        "index, weight, mode='max'",
        "np.take(weight, index, axis=0).max(axis=1)",
        _distinct_rows,
        dtypes=("float32", "float64"),
    ),
    _bag(
        "embedding_bag_frequent",
        "index, weight, mode='sum'",
        "np.take(weight, index, axis=0).sum(axis=1)",
        _frequent_words,
    ),
    _bag(
        "embedding_bag_offsets",
        "index, weight, offsets, mode='sum'",
        "np.add.reduceat(np.take(weight, index, axis=0), offsets, axis=0)",
        _flat_bags,
    ),
    _bag(
        "embedding_bag_offsets_mean",
        "index, weight, offsets, mode='mean'",
        "np.add.reduceat(np.take(weight, index, axis=0), offsets, axis=0) / (len(index) // len(offsets))",
        _flat_bags,
    ),
    _bag(
        "embedding_bag_weighted",
        "index, weight, per_sample_weights=scale, mode='sum'",
        "np.einsum('bw,bwf->bf', scale, np.take(weight, index, axis=0))",
        _weighted_bags,
    ),
)
