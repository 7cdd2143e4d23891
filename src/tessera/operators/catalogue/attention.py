"""Attention: scaled dot products, with masks, shared heads and projections."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.draws import Draw, normal
from tessera.operators.operator import Call, Input, Operator, by_size

# (n, heads, length, features of a head)
HEADS = ((1, 2, 32, 32), (1, 12, 197, 64), (4, 16, 512, 64))
# (n, length, features)
SEQUENCES = ((1, 16, 64), (1, 128, 512), (4, 512, 768))
# half of all pairs, and each query itself: none may see nothing
VISIBLE = Draw("(rng.random(shape) < 0.5) | np.eye(*shape, dtype=bool)")
# weights as small as a network's
SMALL = Draw("rng.standard_normal(shape) / shape[-1] ** 0.5")


def _products(call: Call) -> float:
    """FLOPs of the two matrix products, of scores and of values; a causal mask is not credited.

    Where there is a query alone, it is its own key and value.
    """
    query = call.shapes["query"]
    key, value = (call.shapes.get(name, query) for name in ("key", "value"))
    return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _projected_products(call: Call) -> float:
    """The products of attention and of its four projections."""
    query = call.shapes["query"]
    rows = [math.prod(call.shapes.get(name, query)[:-1]) for name in ("query", "key", "value", "query")]
    return _products(call) + 2.0 * query[-1] ** 2 * sum(rows)


def _attention(name: str, torch: str, reference: str, inputs: Any, *scales: Any, **others: Any) -> Operator:
    return Operator(
        name=name,
        category="attention",
        torch=torch,
        reference=reference,
        sizes=by_size(inputs, *(scales or HEADS)),
        **({"flops": _products} | others),
    )


def _heads(n: int, heads: int, length: int, features: int) -> dict[str, Input]:
    shape = (n, heads, length, features)
    return {name: Input(shape=shape) for name in ("query", "key", "value")}


def _cross(n: int, heads: int, queries: int, keys: int, features: int) -> dict[str, Input]:
    """Queries that look at another, or a longer, sequence."""
    other = Input(shape=(n, heads, keys, features))
    return {"query": Input(shape=(n, heads, queries, features)), "key": other, "value": other}


def _shared(n: int, heads: int, length: int, features: int) -> dict[str, Input]:
    """As many heads of keys and values as there are pairs of heads of queries."""
    other = Input(shape=(n, heads // 2, length, features))
    return {"query": Input(shape=(n, heads, length, features)), "key": other, "value": other}


def _masked(kind: str) -> Any:
    def inputs(n: int, heads: int, length: int, features: int) -> dict[str, Input]:
        draw = VISIBLE if kind == "bool" else normal
        mask = Input(shape=(length, length), kind=kind, draw=draw, grad=False)
        return {**_heads(n, heads, length, features), "mask": mask}

    return inputs


def _projected(n: int, length: int, features: int) -> dict[str, Input]:
    """Sequences and the projections of several heads."""
    return {
        **{name: Input(shape=(n, length, features)) for name in ("query", "key", "value")},
        "in_weight": Input(shape=(3 * features, features), draw=SMALL),
        "in_bias": Input(shape=(3 * features,)),
        "out_weight": Input(shape=(features, features), draw=SMALL),
        "out_bias": Input(shape=(features,)),
    }


DOT_PRODUCT = "F.scaled_dot_product_attention(query, key, value)"
PLAIN = "ref.attention(query, key, value)"
PROJECTED = "ref.multi_head_attention(query, key, value, in_weight, in_bias, out_weight, out_bias, num_heads=num_heads)"

OPERATORS = (
    # backward: the scores are computed again, then two products each for the weights and the scores
    _attention("scaled_dot_product_attention", DOT_PRODUCT, PLAIN, _heads, aliases=("sdpa",), backward_flops=2.5),
    _attention(
        "scaled_dot_product_attention_causal",
        "F.scaled_dot_product_attention(query, key, value, is_causal=True)",
        "ref.attention(query, key, value, causal=True)",
        _heads,
        backward_flops=2.5,
    ),
    _attention(
        "scaled_dot_product_attention_mask",
        "F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
        "ref.attention(query, key, value, mask)",
        _masked("bool"),
        backward_flops=2.5,
    ),
    _attention(
        "scaled_dot_product_attention_bias",
        "F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
        "ref.attention(query, key, value, mask)",
        _masked("float"),
        backward_flops=2.5,
    ),
    _attention(
        "scaled_dot_product_attention_gqa",
        "F.scaled_dot_product_attention(query, key, value, enable_gqa=True)",
        PLAIN,
        _shared,
        backward_flops=2.5,
    ),
    _attention(
        "scaled_dot_product_attention_cross",
        DOT_PRODUCT,
        PLAIN,
        _cross,
        (1, 2, 16, 48, 32),
        (1, 8, 128, 512, 64),
        (4, 16, 256, 1024, 64),
        backward_flops=2.5,
    ),
    # one new token against all before it
    _attention(
        "scaled_dot_product_attention_decode",
        DOT_PRODUCT,
        PLAIN,
        _cross,
        (1, 2, 1, 32, 32),
        (1, 12, 1, 1024, 64),
        (8, 32, 1, 4096, 128),
        backward_flops=2.5,
    ),
    _attention(
        "scaled_dot_product_attention_math",
        "torch._scaled_dot_product_attention_math(query, key, value)[0]",
        PLAIN,
        _heads,
    ),
    _attention(
        "attention_unfused",
        "torch.softmax(query @ key.mT * scale, -1) @ value",
        PLAIN,
        _heads,
        attributes=lambda shapes: {"scale": 1.0 / math.sqrt(shapes["query"][-1])},
    ),
    _attention(
        "multi_head_attention_forward",
        "F.multi_head_attention_forward(query.swapaxes(0, 1), key.swapaxes(0, 1), value.swapaxes(0, 1), "
        "query.shape[-1], num_heads, in_weight, in_bias, None, None, False, 0.0, out_weight, out_bias, "
        "need_weights=False)[0]",
        f"{PROJECTED}.swapaxes(0, 1)",
        _projected,
        *SEQUENCES,
        attributes={"num_heads": 8},
        flops=_projected_products,
    ),
    _attention(
        "native_multi_head_attention",
        "torch._native_multi_head_attention(query, query, query, query.shape[-1], num_heads, in_weight, in_bias, "
        "out_weight, out_bias, need_weights=False)[0]",
        PROJECTED.replace("key, value", "query, query"),
        lambda *scale: {name: one for name, one in _projected(*scale).items() if name not in ("key", "value")},
        *SEQUENCES,
        attributes={"num_heads": 8},
        flops=_projected_products,
        differentiable=False,
    ),
)
