"""How OpenVINO writes recurrent cells and layers. It takes known weights only, laid out in its own order of gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A kind of cell: the blocks of torch's weights in the order of OpenVINO's, the states, further arguments.

    Torch's blocks are input, forget, cell, output; or reset, update, new.
    """

    kind: str
    order: tuple[int, ...]
    states: tuple[str, ...] = ("hidden",)
    more: str = ""

    def weight(self, name: str) -> str:
        return f"blocks({name}, {list(self.order)})"

    def bias(self, way: str) -> str:
        """One bias where torch has two; but a gated unit resets a part of one and not of the other."""
        ours, theirs = self.weight(f"bias_ih{way}"), self.weight(f"bias_hh{way}")
        if self.kind != "gru":
            return f"op.add({ours}, {theirs})"
        gates, new = "op.slice({0}, [0], [2 * n], [1])", "op.slice({0}, [2 * n], [3 * n], [1])"
        both = f"op.add({gates.format('ours')}, {gates.format('theirs')})"
        joined = f"op.concat([{both}, {new.format('ours')}, {new.format('theirs')}], 0)"
        return f"(lambda ours, theirs, n: {joined})({ours}, {theirs}, hidden.shape[-1])"


LSTM = Cell(kind="lstm", order=(1, 0, 2, 3), states=("hidden", "cell"))
GRU = Cell(kind="gru", order=(1, 0, 2), more=", linear_before_reset=True")
TANH = Cell(kind="rnn", order=(0,), more=", activations=['tanh'], activations_alpha=[], activations_beta=[]")
RELU = Cell(kind="rnn", order=(0,), more=", activations=['relu'], activations_alpha=[], activations_beta=[]")

SWAPPED = "op.transpose({0}, [1, 0, 2])"


def _step(cell: Cell) -> str:
    """One step of one layer."""
    weights = f"{cell.weight('weight_ih')}, {cell.weight('weight_hh')}, {cell.bias('')}"
    return f"op.{cell.kind}_cell(data, {', '.join(cell.states)}, {weights}, hidden.shape[-1]{cell.more})"


def _layer(cell: Cell, *, batch_first: bool = False, both: bool = False) -> str:
    """A layer over time; OpenVINO has the batch first, in data, states and outputs."""
    ways = ["_0", "_0_reverse"] if both else ["_0"]

    def stacked(parts: list[str]) -> str:
        rows = ", ".join(f"op.unsqueeze({part}, [0])" for part in parts)
        return f"op.concat([{rows}], 0)" if both else rows

    direction = "bidirectional" if both else "forward"
    inputs = [
        "data" if batch_first else SWAPPED.format("data"),
        *(SWAPPED.format(state) for state in cell.states),
        f"np.full(hidden.shape[1], data.shape[{int(batch_first)}])",
        stacked([cell.weight(f"weight_ih{way}") for way in ways]),
        stacked([cell.weight(f"weight_hh{way}") for way in ways]),
        stacked([cell.bias(way) for way in ways]),
        "hidden.shape[-1]",
        f"'{direction}'",
    ]
    result = f"op.{cell.kind}_sequence({', '.join(inputs)}{cell.more}).outputs()"
    shown = "op.squeeze(out, [1])" if batch_first else SWAPPED.format("op.squeeze(out, [1])")
    if both:
        shown = "op.reshape(op.transpose(out, [2, 0, 1, 3]), [0, 0, -1], True)"
    return f"(lambda out, *last: [{shown}, *({SWAPPED.format('state')} for state in last)])(*{result})"


RECURRENT: Mapping[str, str] = {
    "gru": _layer(GRU),
    "gru_batch_first": _layer(GRU, batch_first=True),
    "gru_bidirectional": _layer(GRU, both=True),
    "gru_cell": _step(GRU),
    "lstm": _layer(LSTM),
    "lstm_batch_first": _layer(LSTM, batch_first=True),
    "lstm_bidirectional": _layer(LSTM, both=True),
    "lstm_cell": _step(LSTM),
    "rnn_relu": _layer(RELU),
    "rnn_relu_cell": _step(RELU),
    "rnn_tanh": _layer(TANH),
    "rnn_tanh_bidirectional": _layer(TANH, both=True).replace("['tanh']", "['tanh', 'tanh']"),
    "rnn_tanh_cell": _step(TANH),
}
