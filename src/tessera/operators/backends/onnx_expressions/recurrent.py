"""ONNX expressions of recurrent layers. Weights are packed before the timed run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentCell:
    """Description of a recurrent cell in ONNX.

    `kind` is the ONNX operator and `order` holds, for each gate in ONNX's order, its index in torch's order. Torch
    orders the gates of an LSTM as input, forget, cell, output, and the gates of a GRU as reset, update, new. `states`
    are the input names of the states, and `attributes` is the source of further keyword arguments.
    """

    kind: str
    order: tuple[int, ...]
    states: tuple[str, ...] = ("hidden",)
    attributes: str = ""


LSTM_CELL = RecurrentCell(kind="LSTM", order=(0, 3, 1, 2), states=("hidden", "cell"))
GRU_CELL = RecurrentCell(kind="GRU", order=(1, 0, 2), attributes=", linear_before_reset=1")
TANH_CELL = RecurrentCell(kind="RNN", order=(0,))
RELU_CELL = RecurrentCell(kind="RNN", order=(0,), attributes=", activations=['Relu']")
RECURRENT_CELLS = {"gru": GRU_CELL, "lstm": LSTM_CELL, "rnn_relu": RELU_CELL, "rnn_tanh": TANH_CELL}


def _write_layer(
    cell: RecurrentCell,
    *,
    data: str = "data",
    state: str = "{}",
    suffixes: tuple[str, ...] = ("_0",),
    attributes: str = "",
) -> str:
    """Return the source of one layer over data (time, n, features).

    Its results are the outputs of all steps, then the last states. `suffixes` are the endings of the weight names, one
    for each direction.
    """

    def pack(*names: str) -> str:
        rows = ", ".join("[" + ", ".join(name + suffix for name in names) + "]" for suffix in suffixes)
        return f"packed({list(cell.order)}, {rows})"

    states = [state.format(name) for name in cell.states]
    inputs = [data, pack("weight_ih"), pack("weight_hh"), pack("bias_ih", "bias_hh"), "None", *states]
    count = 1 + len(states)
    attributes = f"hidden_size=hidden.shape[-1], outputs={count}{attributes}{cell.attributes}"
    return f"op.{cell.kind}({', '.join(inputs)}, {attributes})"


def _write_forward(cell: RecurrentCell) -> str:
    return f"(lambda out, *last: (op.Squeeze(out, [1]), *last))(*{_write_layer(cell)})"


def _write_bidirectional(cell: RecurrentCell) -> str:
    layer = _write_layer(cell, suffixes=("_0", "_0_reverse"), attributes=", direction='bidirectional'")
    return f"(lambda out, *last: (op.Reshape(op.Transpose(out, perm=[0, 2, 1, 3]), [0, 0, -1]), *last))(*{layer})"


def _write_batch_first(cell: RecurrentCell) -> str:
    """Return the source of a layer over data (n, time, features), which transposes data and outputs as exporters do."""
    layer = _write_layer(cell, data="op.Transpose(data, perm=[1, 0, 2])")
    return f"(lambda out, *last: (op.Transpose(op.Squeeze(out, [1]), perm=[1, 0, 2]), *last))(*{layer})"


def write_step(cell: RecurrentCell) -> str:
    """Return the source of one step, as a layer over one time step; its results are the states after the step."""
    layer = _write_layer(cell, data="op.Unsqueeze(data, [0])", state="op.Unsqueeze({}, [0])", suffixes=("",))
    return f"(lambda out, *last: [op.Squeeze(state, [0]) for state in last])(*{layer})"


RECURRENT_EXPRESSIONS: Mapping[str, str] = {
    **{name: _write_forward(cell) for name, cell in RECURRENT_CELLS.items()},
    **{f"{name}_batch_first": _write_batch_first(RECURRENT_CELLS[name]) for name in ("gru", "lstm")},
    **{f"{name}_bidirectional": _write_bidirectional(RECURRENT_CELLS[name]) for name in ("gru", "lstm", "rnn_tanh")},
}
