"""Tests of the reference recurrent layers, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

CELLS = {"LSTM": ref.lstm_cell, "GRU": ref.gru_cell, "RNN": ref.rnn_tanh_cell}


@given(
    st.integers(0, 2**31),
    st.sampled_from(sorted(CELLS)),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_layers_match_torch(seed, kind, layers, both, projected):
    torch.manual_seed(seed)
    more = {"proj_size": 2} if projected and kind == "LSTM" else {}
    module = getattr(torch.nn, kind)(3, 4, layers, bidirectional=both, dtype=torch.float64, **more)
    data = torch.randn(5, 2, 3, dtype=torch.float64)
    runs = layers * (1 + both)
    states = [torch.randn(runs, 2, 2 if more else 4, dtype=torch.float64)]
    if kind == "LSTM":
        states.append(torch.randn(runs, 2, 4, dtype=torch.float64))
    with torch.no_grad():
        out, last = module(data, tuple(states) if kind == "LSTM" else states[0])
    weights = [weight.detach().numpy() for weight in module.parameters()]
    arrays = tuple(state.numpy() for state in states)
    result = ref.recurrent(CELLS[kind], data.numpy(), arrays, weights, directions=1 + both)
    for one, other in zip(result, (out, *(last if kind == "LSTM" else (last,))), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@given(st.integers(0, 2**31), st.sampled_from(["lstm", "gru", "rnn_tanh", "rnn_relu"]))
@settings(max_examples=30, deadline=None)
def test_cells_match_torch(seed, kind):
    rng = np.random.default_rng(seed)
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    data, *states = (rng.standard_normal((2, n)) for n in ((3, 4, 4) if kind == "lstm" else (3, 4)))
    weights = [rng.standard_normal(shape) for shape in ((4 * gates, 3), (4 * gates, 4), (4 * gates,), (4 * gates,))]
    tensors = [torch.from_numpy(state) for state in states]
    function = getattr(torch, f"{kind}_cell")
    expected = function(
        torch.from_numpy(data), tensors if kind == "lstm" else tensors[0], *map(torch.from_numpy, weights)
    )
    result = getattr(ref, f"{kind}_cell")(data, *states, *weights)
    for one, other in zip(result, expected if kind == "lstm" else (expected,), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
