"""Reference implementations of recurrent layers: single steps (cells), and stacked or bidirectional layers over time.

Weights are in torch's order: for each layer and direction `weight_ih, weight_hh, bias_ih, bias_hh`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tessera.operators.arrays import Array

State = tuple[Array, ...]
Cell = Callable[..., State]


def sigmoid(data: Array) -> Array:
    """Return the logistic function."""
    return 0.5 * (1.0 + np.tanh(0.5 * data))


def lstm_cell(
    data: Array,
    hidden: Array,
    cell: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array,
    bias_hh: Array,
    projection: Array | None = None,
) -> State:
    """Run one step of an LSTM; return its hidden state (multiplied by `projection`, if given) and its cell state."""
    gates = data @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh
    admit, keep, value, show = np.split(gates, 4, axis=-1)
    after = sigmoid(keep) * cell + sigmoid(admit) * np.tanh(value)
    shown = sigmoid(show) * np.tanh(after)
    return (shown if projection is None else shown @ projection.T), after


def gru_cell(data: Array, hidden: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array, bias_hh: Array) -> State:
    """Run one step of a gated recurrent unit (GRU); return its hidden state."""
    reset, update, new = np.split(data @ weight_ih.T + bias_ih, 3, axis=-1)
    reset_h, update_h, new_h = np.split(hidden @ weight_hh.T + bias_hh, 3, axis=-1)
    gate = sigmoid(update + update_h)
    return ((1.0 - gate) * np.tanh(new + sigmoid(reset + reset_h) * new_h) + gate * hidden,)


def rnn_tanh_cell(
    data: Array, hidden: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array, bias_hh: Array
) -> State:
    """Run one step of a plain recurrent unit with tanh; return its hidden state."""
    return (np.tanh(data @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh),)


def rnn_relu_cell(
    data: Array, hidden: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array, bias_hh: Array
) -> State:
    """Run one step of a plain recurrent unit with ReLU; return its hidden state."""
    return (np.maximum(data @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh, 0.0),)


def recurrent(
    cell: Cell, data: Array, states: State, weights: Sequence[Array], *, directions: int = 1
) -> tuple[Array, ...]:
    """Run a cell over data (time, n, features) from states (layers * directions, n, hidden).

    Return the outputs of all steps of the last layer, and the last states.
    """
    runs = states[0].shape[0]
    per_run = len(weights) // runs
    last: list[State] = []
    for layer in range(runs // directions):
        direction_outputs = []
        for direction in range(directions):
            run = layer * directions + direction
            run_weights = weights[run * per_run : (run + 1) * per_run]
            state = tuple(part[run] for part in states)
            shown = []
            for step in data[::-1] if direction else data:
                state = cell(step, *state, *run_weights)
                shown.append(state[0])
            direction_outputs.append(np.stack(shown[::-1] if direction else shown))
            last.append(state)
        data = np.concatenate(direction_outputs, axis=-1)
    return data, *(np.stack(parts) for parts in zip(*last, strict=True))
