"""Attention: scaled dot-product attention with masks, grouped-query heads and projections."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.catalogue.families import define_operator
from tessera.operators.draws import Draw, normal
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes

# (n, heads, length, features per head) for each size
HEAD_SCALES = ((1, 2, 32, 32), (1, 12, 197, 64), (4, 16, 512, 64))
# (n, length, features) for each size
SEQUENCE_SCALES = ((1, 16, 64), (1, 128, 512), (4, 512, 768))
# a random mask with half of all pairs, and the diagonal, so that every query attends to at least one key
ATTENTION_MASK = Draw("(rng.random(shape) < 0.5) | np.eye(*shape, dtype=bool)")
# weights with the magnitude of an initialised network
SCALED_NORMAL = Draw("rng.standard_normal(shape) / shape[-1] ** 0.5")


def _count_products(call: OperatorCall) -> float:
    """Count the FLOPs of the two matrix products, query x key and scores x value; a causal mask does not reduce them.

    Self-attention without inputs `key` and `value` uses the shape of `query` for both.
    """
    query = call.shapes["query"]
    key, value = (call.shapes.get(name, query) for name in ("key", "value"))
    return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _count_projected_products(call: OperatorCall) -> float:
    """Count the FLOPs of the matrix products of attention and of the query, key, value and output projections."""
    query = call.shapes["query"]
    rows = [math.prod(call.shapes.get(name, query)[:-1]) for name in ("query", "key", "value", "query")]
    return _count_products(call) + 2.0 * query[-1] ** 2 * sum(rows)


def _define_attention(name: str, torch: str, reference: str, inputs: Any, *scales: Any, **others: Any) -> Operator:
    sizes = make_sizes(inputs, *(scales or HEAD_SCALES))
    return define_operator("attention", name, torch, reference, sizes, **({"flops": _count_products} | others))


def _define_dot_product(
    suffix: str, inputs: Any, *scales: Any, torch: str = "", reference: str = "", **others: Any
) -> Operator:
    """Define scaled dot-product attention; `torch` and `reference` are further arguments.

    The backward pass recomputes the scores, then has two matrix products each for the attention weights and the scores.
    """
    name = f"scaled_dot_product_attention{suffix}"
    call, check = (
        f"F.scaled_dot_product_attention(query, key, value{torch})",
        f"ref.attention(query, key, value{reference})",
    )
    return _define_attention(name, call, check, inputs, *scales, backward_flops=2.5, **others)


def _make_heads(n: int, heads: int, length: int, features: int) -> dict[str, Input]:
    shape = (n, heads, length, features)
    return {name: Input(shape) for name in ("query", "key", "value")}


def _make_cross(n: int, heads: int, queries: int, keys: int, features: int) -> dict[str, Input]:
    """Make the inputs of cross-attention: keys and values have their own sequence length `keys`."""
    other = Input((n, heads, keys, features))
    return {"query": Input((n, heads, queries, features)), "key": other, "value": other}


def _make_grouped_query(n: int, heads: int, length: int, features: int) -> dict[str, Input]:
    """Make the inputs of grouped-query attention: half as many heads of keys and values as of queries."""
    other = Input((n, heads // 2, length, features))
    return {"query": Input((n, heads, length, features)), "key": other, "value": other}


def _make_masked(kind: str) -> Any:
    def build_inputs(n: int, heads: int, length: int, features: int) -> dict[str, Input]:
        draw = ATTENTION_MASK if kind == "bool" else normal
        mask = Input((length, length), draw, kind, grad=False)
        return {**_make_heads(n, heads, length, features), "mask": mask}

    return build_inputs


def _make_multi_head(n: int, length: int, features: int) -> dict[str, Input]:
    """Make the inputs of multi-head attention: sequences, and the weights and biases of the projections."""
    return {
        **{name: Input((n, length, features)) for name in ("query", "key", "value")},
        "in_weight": Input((3 * features, features), SCALED_NORMAL),
        "in_bias": Input((3 * features,)),
        "out_weight": Input((features, features), SCALED_NORMAL),
        "out_bias": Input((features,)),
    }


DOT_PRODUCT_REFERENCE = "ref.attention(query, key, value)"
MULTI_HEAD_REFERENCE = (
    "ref.multi_head_attention(query, key, value, in_weight, in_bias, out_weight, out_bias, num_heads=num_heads)"
)

OPERATORS = (
    _define_dot_product("", _make_heads, aliases=("sdpa",)),
    _define_dot_product("_causal", _make_heads, torch=", is_causal=True", reference=", causal=True"),
    _define_dot_product("_mask", _make_masked("bool"), torch=", attn_mask=mask", reference=", mask"),
    _define_dot_product("_bias", _make_masked("float"), torch=", attn_mask=mask", reference=", mask"),
    _define_dot_product("_gqa", _make_grouped_query, torch=", enable_gqa=True"),
    _define_dot_product("_cross", _make_cross, (1, 2, 16, 48, 32), (1, 8, 128, 512, 64), (4, 16, 256, 1024, 64)),
    # decoding: one new query token attends to all earlier tokens
    _define_dot_product("_decode", _make_cross, (1, 2, 1, 32, 32), (1, 12, 1, 1024, 64), (8, 32, 1, 4096, 128)),
    _define_attention(
        "scaled_dot_product_attention_math",
        "torch._scaled_dot_product_attention_math(query, key, value)[0]",
        DOT_PRODUCT_REFERENCE,
        _make_heads,
    ),
    _define_attention(
        "attention_unfused",
        "torch.softmax(query @ key.mT * scale, -1) @ value",
        DOT_PRODUCT_REFERENCE,
        _make_heads,
        attributes=lambda shapes: {"scale": 1.0 / math.sqrt(shapes["query"][-1])},
    ),
    _define_attention(
        "multi_head_attention_forward",
        "F.multi_head_attention_forward(query.swapaxes(0, 1), key.swapaxes(0, 1), value.swapaxes(0, 1), "
        "query.shape[-1], num_heads, in_weight, in_bias, None, None, False, 0.0, out_weight, out_bias, "
        "need_weights=False)[0]",
        f"{MULTI_HEAD_REFERENCE}.swapaxes(0, 1)",
        _make_multi_head,
        *SEQUENCE_SCALES,
        attributes={"num_heads": 8},
        flops=_count_projected_products,
    ),
    _define_attention(
        "native_multi_head_attention",
        "torch._native_multi_head_attention(query, query, query, query.shape[-1], num_heads, in_weight, in_bias, "
        "out_weight, out_bias, need_weights=False)[0]",
        MULTI_HEAD_REFERENCE.replace("key, value", "query, query"),
        lambda *scale: {name: one for name, one in _make_multi_head(*scale).items() if name not in ("key", "value")},
        *SEQUENCE_SCALES,
        attributes={"num_heads": 8},
        flops=_count_projected_products,
        differentiable=False,
    ),
)
