"""How ONNX writes recurrent layers. Their weights come packed: laying them out is no part of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A kind of cell: the blocks of torch's weights in the order of ONNX's, the states, further arguments.

    Torch's blocks are input, forget, cell, output; or reset, update, new.
    """

    kind: str
    order: tuple[int, ...]
    states: tuple[str, ...] = ("hidden",)
    more: str = ""


LSTM = Cell(kind="LSTM", order=(0, 3, 1, 2), states=("hidden", "cell"))
GRU = Cell(kind="GRU", order=(1, 0, 2), more=", linear_before_reset=1")
TANH = Cell(kind="RNN", order=(0,))
RELU = Cell(kind="RNN", order=(0,), more=", activations=['Relu']")


def _layer(cell: Cell, *, data: str = "data", both: bool = False) -> str:
    """One layer over time (time, n, features): all outputs, then the last states."""
    ways = ["_0", "_0_reverse"] if both else ["_0"]

    def packed(*names: str) -> str:
        rows = ", ".join("[" + ", ".join(name + way for name in names) + "]" for way in ways)
        return f"packed({list(cell.order)}, {rows})"

    inputs = [data, packed("weight_ih"), packed("weight_hh"), packed("bias_ih", "bias_hh"), "None", *cell.states]
    more = (", direction='bidirectional'" if both else "") + cell.more
    return f"op.{cell.kind}({', '.join(inputs)}, hidden_size=hidden.shape[-1], outputs={1 + len(cell.states)}{more})"


ONE_WAY = "(lambda out, *last: (op.Squeeze(out, [1]), *last))(*{0})"
BOTH_WAYS = "(lambda out, *last: (op.Reshape(op.Transpose(out, perm=[0, 2, 1, 3]), [0, 0, -1]), *last))(*{0})"
# exporters turn data whose batch comes first, and the outputs back
BATCH_FIRST = "(lambda out, *last: (op.Transpose(op.Squeeze(out, [1]), perm=[1, 0, 2]), *last))(*{0})"
TURNED = "op.Transpose(data, perm=[1, 0, 2])"

RECURRENT: Mapping[str, str] = {
    "gru": ONE_WAY.format(_layer(GRU)),
    "gru_batch_first": BATCH_FIRST.format(_layer(GRU, data=TURNED)),
    "gru_bidirectional": BOTH_WAYS.format(_layer(GRU, both=True)),
    "lstm": ONE_WAY.format(_layer(LSTM)),
    "lstm_batch_first": BATCH_FIRST.format(_layer(LSTM, data=TURNED)),
    "lstm_bidirectional": BOTH_WAYS.format(_layer(LSTM, both=True)),
    "rnn_relu": ONE_WAY.format(_layer(RELU)),
    "rnn_tanh": ONE_WAY.format(_layer(TANH)),
    "rnn_tanh_bidirectional": BOTH_WAYS.format(_layer(TANH, both=True)),
}
