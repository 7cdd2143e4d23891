"""Recurrent layers and single steps (cells): RNN, LSTM and GRU."""

from __future__ import annotations

import math

from tessera.operators.catalogue.families import define_family
from tessera.operators.draws import Draw, signs, uniform
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, make_sizes

# (time, n, width) of each size; features and hidden state have the same width
LAYER_SCALES = ((8, 4, 32), (32, 16, 128), (128, 32, 512))
# (n, width) of each size
CELL_SCALES = ((4, 64), (64, 256), (256, 1024))
GATE_COUNTS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
STATE_NAMES = {"lstm": ("hidden", "cell"), "gru": ("hidden",), "rnn_tanh": ("hidden",), "rnn_relu": ("hidden",)}
OFFSET_VALUES = Draw(f"4 * ({signs.expression})")


def _make_weights(
    gates: int, features: int, hidden: int, *, projected: int = 0, suffix: str = "", rectified: bool = False
) -> dict[str, Input]:
    """Make the weights of one layer and direction, in torch's order and with torch's range of initial values."""
    shapes: dict[str, Shape] = {
        "weight_ih": (gates * hidden, features),
        "weight_hh": (gates * hidden, projected or hidden),
        "bias_ih": (gates * hidden,),
        "bias_hh": (gates * hidden,),
        **({"weight_hr": (projected, hidden)} if projected else {}),
    }
    small = uniform(-1.0 / math.sqrt(hidden), 1.0 / math.sqrt(hidden))
    # biases far from zero, so that ReLU's input is never near its non-differentiable point
    draws = {"bias_ih": OFFSET_VALUES if rectified else small}
    return {name + suffix: Input(shape, draws.get(name, small)) for name, shape in shapes.items()}


def _count_products(call: OperatorCall) -> float:
    """Count the FLOPs of the matrix products: two per weight, time step and sample."""
    weights = [shape for name, shape in call.shapes.items() if name.startswith("weight")]
    return 2.0 * math.prod(call.shapes["data"][:-1]) * sum(math.prod(shape) for shape in weights)


_define_recurrent = define_family("recurrent", flops=_count_products)


def _define_layer(
    name: str, cell: str, *, layers: int = 1, directions: int = 1, projected: bool = False, batch_first: bool = False
) -> Operator:
    """Define a recurrent layer: stacked, bidirectional, with a projected hidden state, or with the batch first."""
    gates, states = GATE_COUNTS[cell], STATE_NAMES[cell]
    runs = [f"_{layer}{'_reverse' * way}" for layer in range(layers) for way in range(directions)]

    def build_inputs(time: int, n: int, width: int) -> dict[str, Input]:
        shown = width // 2 if projected else width
        tensors = {"data": Input((n, time, width) if batch_first else (time, n, width))}
        for state in states:
            tensors[state] = Input((len(runs), n, shown if state == "hidden" else width))
        for number, run in enumerate(runs):
            features = width if number < directions else directions * shown
            tensors |= _make_weights(
                gates, features, width, projected=shown if projected else 0, suffix=run, rectified=cell == "rnn_relu"
            )
        return tensors

    sizes = make_sizes(build_inputs, *LAYER_SCALES)
    weights = ", ".join(list(sizes["small"])[1 + len(states) :])
    given = f"({', '.join(states)})" if len(states) > 1 else states[0]
    # torch's arguments has_biases, num_layers, dropout, train, bidirectional, batch_first
    how = f"True, {layers}, 0.0, True, {directions > 1}, {batch_first}"
    result = f"ref.recurrent(ref.{cell}_cell, data, ({', '.join(states)},), ({weights}), directions={directions})"
    if batch_first:
        swapped = result.replace("data", "data.swapaxes(0, 1)")
        result = f"(lambda out, *last: (out.swapaxes(0, 1), *last))(*{swapped})"
    return _define_recurrent(name, f"torch.{cell}(data, {given}, ({weights}), {how})", result, sizes)


def _define_cell(cell: str) -> Operator:
    """Define one time step of one recurrent layer."""
    gates, states = GATE_COUNTS[cell], STATE_NAMES[cell]

    def build_inputs(n: int, width: int) -> dict[str, Input]:
        rows = {name: Input((n, width)) for name in ("data", *states)}
        return rows | _make_weights(gates, width, width, rectified=cell == "rnn_relu")

    given = f"({', '.join(states)})" if len(states) > 1 else states[0]
    torch = f"torch.{cell}_cell(data, {given}, weight_ih, weight_hh, bias_ih, bias_hh)"
    return _define_recurrent(f"{cell}_cell", torch, f"ref.{cell}_cell", make_sizes(build_inputs, *CELL_SCALES))


OPERATORS = (
    *(_define_layer(cell, cell) for cell in GATE_COUNTS),
    *(_define_cell(cell) for cell in GATE_COUNTS),
    _define_layer("lstm_two_layers", "lstm", layers=2),
    _define_layer("lstm_bidirectional", "lstm", directions=2),
    _define_layer("lstm_bidirectional_two_layers", "lstm", layers=2, directions=2),
    _define_layer("lstm_projected", "lstm", projected=True),
    _define_layer("lstm_batch_first", "lstm", batch_first=True),
    _define_layer("gru_two_layers", "gru", layers=2),
    _define_layer("gru_bidirectional", "gru", directions=2),
    _define_layer("gru_batch_first", "gru", batch_first=True),
    _define_layer("rnn_tanh_bidirectional", "rnn_tanh", directions=2),
)
