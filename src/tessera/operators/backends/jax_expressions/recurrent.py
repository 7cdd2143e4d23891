"""Recurrent cells in JAX, and layers as a scan of a cell over time."""

from __future__ import annotations

# gates of a step from data `x` and hidden state `h`, with weights that end in `{0}`
INPUT = "x @ weight_ih{0}.T + bias_ih{0}"
STATE = "h @ weight_hh{0}.T + bias_hh{0}"

# functions of the states, in a tuple, and of the data; they give the states after the step
CELLS = {
    "rnn_tanh": f"lambda h, x: (jnp.tanh({INPUT} + {STATE}),)",
    "rnn_relu": f"lambda h, x: (jax.nn.relu({INPUT} + {STATE}),)",
    "gru": "lambda h, x: (lambda reset, update, new, reset_h, update_h, new_h: (lambda kept:"
    " ((1 - kept) * jnp.tanh(new + jax.nn.sigmoid(reset + reset_h) * new_h) + kept * h,))"
    f"(jax.nn.sigmoid(update + update_h)))(*jnp.split({INPUT}, 3, -1), *jnp.split({STATE}, 3, -1))",
    "lstm": "lambda h, c, x: (lambda admit, keep, value, show: (lambda after:"
    " (jax.nn.sigmoid(show) * jnp.tanh(after), after))"
    "(jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(admit) * jnp.tanh(value)))"
    f"(*jnp.split({INPUT} + {STATE}, 4, -1))",
}
STATES = {"rnn_tanh": ("hidden",), "rnn_relu": ("hidden",), "gru": ("hidden",), "lstm": ("hidden", "cell")}


def step(cell: str) -> str:
    return f"({CELLS[cell].format('')})({', '.join(STATES[cell])}, data)"


def layer(cell: str, data: str = "data") -> str:
    """All hidden states, then the last states, as (layers, n, features)."""
    start = ", ".join(f"{state}[0]" for state in STATES[cell])
    body = f"lambda states, x: (lambda after: (after, after[0]))(({CELLS[cell].format('_0')})(*states, x))"
    return f"(lambda last, shown: (shown, *(state[None] for state in last)))(*lax.scan({body}, ({start},), {data}))"


def batch_first(cell: str) -> str:
    return f"(lambda shown, *last: (shown.swapaxes(0, 1), *last))(*{layer(cell, 'data.swapaxes(0, 1)')})"


EXPRESSIONS = {
    **{f"{cell}_cell": step(cell) for cell in CELLS},
    **{cell: layer(cell) for cell in CELLS},
    **{f"{cell}_batch_first": batch_first(cell) for cell in ("gru", "lstm")},
}
