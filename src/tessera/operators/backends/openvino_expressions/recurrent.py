"""How OpenVINO writes recurrent cells and layers. It takes known weights only, laid out in its own order of gates."""

from __future__ import annotations

from collections.abc import Mapping

# the blocks of torch's weights (input, forget, cell, output; reset, update, new) in the order of OpenVINO's
LSTM = [1, 0, 2, 3]
GRU = [1, 0, 2]


def _weights(order: list[int], suffix: str) -> tuple[str, str]:
    return f"blocks(weight_ih{suffix}, {order})", f"blocks(weight_hh{suffix}, {order})"


def _summed(order: list[int], suffix: str) -> str:
    """One bias where torch has two."""
    return f"op.add(blocks(bias_ih{suffix}, {order}), blocks(bias_hh{suffix}, {order}))"


def _apart(suffix: str) -> str:
    """The bias of a gated unit, whose last block is reset apart from the input's."""
    parts = (
        f"blocks(bias_ih{suffix}, {GRU})",
        f"blocks(bias_hh{suffix}, {GRU})",
    )
    return (
        "(lambda ours, theirs, n: op.concat("
        "[op.add(op.slice(ours, [0], [2 * n], [1]), op.slice(theirs, [0], [2 * n], [1])),"
        " op.slice(ours, [2 * n], [3 * n], [1]), op.slice(theirs, [2 * n], [3 * n], [1])], 0))"
        f"({', '.join(parts)}, hidden.shape[-1])"
    )


def _cell(kind: str, order: list[int], states: str, bias: str, more: str = "") -> str:
    weights = ", ".join(_weights(order, ""))
    return f"op.{kind}(data, {states}, {weights}, {bias}, hidden.shape[-1]{more})"


RECURRENT: Mapping[str, str] = {
    "gru_cell": _cell("gru_cell", GRU, "hidden", _apart(""), ", linear_before_reset=True"),
    "lstm_cell": _cell("lstm_cell", LSTM, "hidden, cell", _summed(LSTM, "")),
    "rnn_relu_cell": _cell("rnn_cell", [0], "hidden", _summed([0], ""), ", ['relu']"),
    "rnn_tanh_cell": _cell("rnn_cell", [0], "hidden", _summed([0], ""), ", ['tanh']"),
}
