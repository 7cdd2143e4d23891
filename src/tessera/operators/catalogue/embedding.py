"""Embeddings: lookup of rows of a table, and reduction of bags of rows to one row each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tessera.operators.catalogue.families import WIDE_DTYPES, define_family
from tessera.operators.draws import Draw, integers, normal, spaced_values
from tessera.operators.operator import Input, Operator, OperatorCall, count_copy_bytes, make_sizes

# (rows of the table, features, sentences or bags, words per sentence or bag)
TABLE_SCALES = ((64, 32, 8, 16), (10000, 256, 32, 128), (50000, 512, 128, 256))
DISTINCT_ROW_VALUES = Draw(f"np.ascontiguousarray((lambda shape: {spaced_values.expression})(shape[::-1]).T)")
WORD_INDICES = integers("shapes['weight'][0]")

_Inputs = Callable[[int, int, int, int], dict[str, Input]]


def _make_sentences(
    words: int, features: int, count: int, length: int, index: Draw = WORD_INDICES, weight: Draw = normal
) -> dict[str, Input]:
    """Make a table, and the word indices of sentences."""
    return {"index": Input((count, length), index, "int64"), "weight": Input((words, features), weight)}


def _make_frequent_words(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    """Make a table and sentences whose word indices have a Zipf distribution, as in text."""
    return _make_sentences(words, features, count, length, Draw(f"(rng.zipf(1.5, shape) - 1) % {words}"))


def _make_flat_bags(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    """Make a table, concatenated bags of word indices, and the offset at which each bag starts."""
    starts = Input((count,), Draw(f"{length} * np.arange(shape[0])"), "int64")
    table = _make_sentences(words, features, count, length)
    return {**table, "index": Input((count * length,), WORD_INDICES, "int64"), "offsets": starts}


def _make_weighted_bags(words: int, features: int, count: int, length: int) -> dict[str, Input]:
    return {**_make_sentences(words, features, count, length), "scale": Input((count, length))}


# a table whose rows differ in every feature, so that the maximum over a bag is unique
_make_distinct_rows = partial(_make_sentences, weight=DISTINCT_ROW_VALUES)


def _count_row_flops(call: OperatorCall) -> float:
    """Count one FLOP for every element of every row that is looked up."""
    return float(math.prod(call.shapes["index"]) * call.shapes["weight"][1])


def _count_row_bytes(call: OperatorCall) -> float:
    """Count the bytes read (every row that is looked up) and written (one row per bag)."""
    row = call.read["weight"] / call.shapes["weight"][0]
    return math.prod(call.shapes["index"]) * row + sum(call.written)


_define_embedding = define_family("embedding")


def _define_lookup(name: str, inputs: _Inputs) -> Operator:
    """Define an embedding lookup, which copies rows without arithmetic."""
    sizes = make_sizes(inputs, *TABLE_SCALES)
    costs = {"moved": count_copy_bytes, "backward_flops": 0.0}
    return _define_embedding(name, "F.embedding", "np.take(weight, index, axis=0)", sizes, **costs)


def _define_bag(variant: str, arguments: str, mode: str, reference: str, inputs: _Inputs, **others: Any) -> Operator:
    """Define an embedding bag; in the reference, `{rows}` are the rows that are looked up."""
    return _define_embedding(
        f"embedding_bag{variant}",
        f"F.embedding_bag(index, weight, {arguments}mode='{mode}')",
        reference.format(rows="np.take(weight, index, axis=0)"),
        make_sizes(inputs, *TABLE_SCALES),
        flops=_count_row_flops,
        moved=_count_row_bytes,
        backward_flops=1.0,
        **others,
    )


_BAG_SUMS = "np.add.reduceat({rows}, offsets, axis=0)"

OPERATORS = (
    _define_lookup("embedding", _make_sentences),
    _define_lookup("embedding_frequent", _make_frequent_words),
    _define_bag("", "", "sum", "{rows}.sum(axis=1)", _make_sentences),
    _define_bag("_mean", "", "mean", "{rows}.mean(axis=1)", _make_sentences),
    _define_bag("_max", "", "max", "{rows}.max(axis=1)", _make_distinct_rows, **WIDE_DTYPES),
    _define_bag("_frequent", "", "sum", "{rows}.sum(axis=1)", _make_frequent_words),
    _define_bag("_offsets", "offsets, ", "sum", _BAG_SUMS, _make_flat_bags),
    _define_bag("_offsets_mean", "offsets, ", "mean", f"{_BAG_SUMS} / (len(index) // len(offsets))", _make_flat_bags),
    _define_bag(
        "_weighted", "per_sample_weights=scale, ", "sum", "np.einsum('bw,bwf->bf', scale, {rows})", _make_weighted_bags
    ),
)
