"""Recurrent layers and their cells, as functions of named weights."""

from __future__ import annotations

import math

from tessera.operators.draws import Draw, signs, uniform
from tessera.operators.operator import Call, Input, Operator, Shape, by_size

# (time, n, features and hidden)
LAYERS = ((8, 4, 32), (32, 16, 128), (128, 32, 512))
# (n, features and hidden)
CELLS = ((4, 64), (64, 256), (256, 1024))
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
STATES = {"lstm": ("hidden", "cell"), "gru": ("hidden",), "rnn_tanh": ("hidden",), "rnn_relu": ("hidden",)}
OFFSET = Draw(f"4 * ({signs.expression})")


def _weights(
    gates: int, features: int, hidden: int, *, projected: int = 0, suffix: str = "", rectified: bool = False
) -> dict[str, Input]:
    """The weights of one layer and direction, in torch's order and within its initial bounds."""
    shapes: dict[str, Shape] = {
        "weight_ih": (gates * hidden, features),
        "weight_hh": (gates * hidden, projected or hidden),
        "bias_ih": (gates * hidden,),
        "bias_hh": (gates * hidden,),
        **({"weight_hr": (projected, hidden)} if projected else {}),
    }
    small = uniform(-1.0 / math.sqrt(hidden), 1.0 / math.sqrt(hidden))
    # far from zero on either side, so that what is rectified does not lie on the kink
    draws = {"bias_ih": OFFSET if rectified else small}
    return {name + suffix: Input(shape=shape, draw=draws.get(name, small)) for name, shape in shapes.items()}


def _products(call: Call) -> float:
    """FLOPs of the matrix products, beside which all else is small: every weight once per step and sample."""
    weights = [shape for name, shape in call.shapes.items() if name.startswith("weight")]
    return 2.0 * math.prod(call.shapes["data"][:-1]) * sum(math.prod(shape) for shape in weights)


def _layer(
    name: str, cell: str, *, layers: int = 1, directions: int = 1, projected: bool = False, batch_first: bool = False
) -> Operator:
    """A layer over time, from its cell; stacked, in both directions, or with a projected hidden state."""
    gates, states = GATES[cell], STATES[cell]
    runs = [f"_{layer}{'_reverse' * way}" for layer in range(layers) for way in range(directions)]

    def inputs(time: int, n: int, width: int) -> dict[str, Input]:
        shown = width // 2 if projected else width
        found = {"data": Input(shape=(n, time, width) if batch_first else (time, n, width))}
        for state in states:
            found[state] = Input(shape=(len(runs), n, shown if state == "hidden" else width))
        for number, run in enumerate(runs):
            features = width if number < directions else directions * shown
            found |= _weights(
                gates, features, width, projected=shown if projected else 0, suffix=run, rectified=cell == "rnn_relu"
            )
        return found

    sizes = by_size(inputs, *LAYERS)
    weights = ", ".join(list(sizes["small"])[1 + len(states) :])
    given = f"({', '.join(states)})" if len(states) > 1 else states[0]
    # has_biases, num_layers, dropout, train, bidirectional, batch_first
    how = f"True, {layers}, 0.0, True, {directions > 1}, {batch_first}"
    result = f"ref.recurrent(ref.{cell}_cell, data, ({', '.join(states)},), ({weights}), directions={directions})"
    if batch_first:
        swapped = result.replace("data", "data.swapaxes(0, 1)")
        result = f"(lambda out, *last: (out.swapaxes(0, 1), *last))(*{swapped})"
    return Operator(
        name=name,
        category="recurrent",
        torch=f"torch.{cell}(data, {given}, ({weights}), {how})",
        reference=result,
        sizes=sizes,
        flops=_products,
    )


def _cell(cell: str) -> Operator:
    """One step of one layer."""
    gates, states = GATES[cell], STATES[cell]

    def inputs(n: int, width: int) -> dict[str, Input]:
        rows = {name: Input(shape=(n, width)) for name in ("data", *states)}
        return rows | _weights(gates, width, width, rectified=cell == "rnn_relu")

    given = f"({', '.join(states)})" if len(states) > 1 else states[0]
    weights = "weight_ih, weight_hh, bias_ih, bias_hh"
    return Operator(
        name=f"{cell}_cell",
        category="recurrent",
        torch=f"torch.{cell}_cell(data, {given}, {weights})",
        reference=f"ref.{cell}_cell(data, {', '.join(states)}, {weights})",
        sizes=by_size(inputs, *CELLS),
        flops=_products,
    )


OPERATORS = (
    *(_layer(cell, cell) for cell in GATES),
    *(_cell(cell) for cell in GATES),
    _layer("lstm_two_layers", "lstm", layers=2),
    _layer("lstm_bidirectional", "lstm", directions=2),
    _layer("lstm_bidirectional_two_layers", "lstm", layers=2, directions=2),
    _layer("lstm_projected", "lstm", projected=True),
    _layer("lstm_batch_first", "lstm", batch_first=True),
    _layer("gru_two_layers", "gru", layers=2),
    _layer("gru_bidirectional", "gru", directions=2),
    _layer("gru_batch_first", "gru", batch_first=True),
    _layer("rnn_tanh_bidirectional", "rnn_tanh", directions=2),
)
