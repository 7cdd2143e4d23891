"""Embeddings: lookup of rows of a table, and reduction of bags of rows to one row each."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.draws import Draw, integers, normal, spaced_values
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, make_sizes
from tessera.operators.work import count_output_bytes

# (rows of the table, features, sentences or bags, words per sentence or bag)
TABLE_SCALES = ((64, 32, 8, 16), (10000, 256, 32, 128), (50000, 512, 128, 256))
DISTINCT_ROW_VALUES = Draw(f"np.ascontiguousarray((lambda shape: {spaced_values.expression})(shape[::-1]).T)")


def _make_table(words: int, features: int, index: Shape, draw: Draw | None = None) -> dict[str, Input]:
    return {
        "index": Input(shape=index, kind="int64", draw=draw or integers("shapes['weight'][0]")),
        "weight": Input(shape=(words, features)),
    }


def _make_sentences(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    return _make_table(words, features, (count, length))


def _make_frequent_words(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    """Make a table and sentences whose word indices have a Zipf distribution, as in text."""
    return _make_table(words, features, (count, length), Draw(f"(rng.zipf(1.5, shape) - 1) % {words}"))


def _make_flat_bags(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    """Make a table, concatenated bags of word indices, and the offset at which each bag starts."""
    starts = Input(shape=(count,), kind="int64", draw=Draw(f"{length} * np.arange(shape[0])"))
    return {**_make_table(words, features, (count * length,)), "offsets": starts}


def _make_weighted_bags(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    return {**_make_sentences(words, features, count, length), "scale": Input(shape=(count, length), draw=normal)}


def _make_distinct_rows(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    """Make sentences, and a table whose rows differ in every feature, so that the maximum over a bag is unique."""
    return {
        **_make_sentences(words, features, count, length),
        "weight": Input(shape=(words, features), draw=DISTINCT_ROW_VALUES),
    }


def _define_lookup(name: str, inputs: Any) -> Operator:
    """Define an embedding lookup, which copies rows without arithmetic."""
    return Operator(
        name=name,
        category="embedding",
        torch="F.embedding(index, weight)",
        reference="np.take(weight, index, axis=0)",
        sizes=make_sizes(inputs, *TABLE_SCALES),
        moved=count_output_bytes,
        backward_flops=0.0,
    )


def _count_row_flops(call: OperatorCall) -> float:
    """Count one FLOP for every element of every row that is looked up."""
    return float(math.prod(call.shapes["index"]) * call.shapes["weight"][1])


def _count_row_bytes(call: OperatorCall) -> float:
    """Count the bytes read (every row that is looked up) and written (one row per bag)."""
    row = call.read["weight"] / call.shapes["weight"][0]
    return math.prod(call.shapes["index"]) * row + sum(call.written)


def _define_bag(name: str, torch: str, reference: str, inputs: Any, **others: Any) -> Operator:
    return Operator(
        name=name,
        category="embedding",
        torch=f"F.embedding_bag({torch})",
        reference=reference,
        sizes=make_sizes(inputs, *TABLE_SCALES),
        flops=_count_row_flops,
        moved=_count_row_bytes,
        backward_flops=1.0,
        **others,
    )


OPERATORS = (
    _define_lookup("embedding", _make_sentences),
    _define_lookup("embedding_frequent", _make_frequent_words),
    _define_bag(
        "embedding_bag", "index, weight, mode='sum'", "np.take(weight, index, axis=0).sum(axis=1)", _make_sentences
    ),
    _define_bag(
        "embedding_bag_mean",
        "index, weight, mode='mean'",
        "np.take(weight, index, axis=0).mean(axis=1)",
        _make_sentences,
    ),
    _define_bag(
        "embedding_bag_max",
        "index, weight, mode='max'",
        "np.take(weight, index, axis=0).max(axis=1)",
        _make_distinct_rows,
        dtypes=("float32", "float64"),
    ),
    _define_bag(
        "embedding_bag_frequent",
        "index, weight, mode='sum'",
        "np.take(weight, index, axis=0).sum(axis=1)",
        _make_frequent_words,
    ),
    _define_bag(
        "embedding_bag_offsets",
        "index, weight, offsets, mode='sum'",
        "np.add.reduceat(np.take(weight, index, axis=0), offsets, axis=0)",
        _make_flat_bags,
    ),
    _define_bag(
        "embedding_bag_offsets_mean",
        "index, weight, offsets, mode='mean'",
        "np.add.reduceat(np.take(weight, index, axis=0), offsets, axis=0) / (len(index) // len(offsets))",
        _make_flat_bags,
    ),
    _define_bag(
        "embedding_bag_weighted",
        "index, weight, per_sample_weights=scale, mode='sum'",
        "np.einsum('bw,bwf->bf', scale, np.take(weight, index, axis=0))",
        _make_weighted_bags,
    ),
)
