"""Modes and their terms: what belongs to which."""

from __future__ import annotations

import pytest

from tessera.errors import MissingExtra, TesseraError
from tessera.inference.modes import server
from tessera.inference.modes.load import Load


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "batch"}, "--mode: got 'batch'"),
        ({"mode": "server"}, "add --max-latency"),
        ({"max_latency": 0.1}, "--max-latency is of --mode server"),
        ({"mode": "single-stream", "target_rate": 3.0}, "--target-rate is of --mode server"),
        ({"mode": "server", "max_latency": -1}, "--max-latency: got -1"),
        ({"generator": "me"}, "--load-generator"),
        ({"generator": "loadgen"}, "--load-generator is of --mode server"),
    ],
)
def test_terms_that_do_not_fit_are_refused(given, says):
    with pytest.raises(TesseraError, match=says):
        Load(**given)


def test_what_is_as_usual_is_not_said():
    assert Load().params() == {}
    assert Load(mode="server", max_latency=0.05, target_rate=10.0).params() == {
        "mode": "server",
        "target_rate": 10.0,
        "max_latency": 0.05,
    }


@pytest.mark.parametrize("installed", [False, True])
def test_loadgen_asks_where_it_is_installed_and_there_is_one_replica(monkeypatch, installed):
    monkeypatch.setattr(server, "find_spec", lambda name: object() if installed else None)
    load = Load(mode="server", max_latency=1.0)
    assert server.uses_loadgen(load, 1) is installed
    assert server.uses_loadgen(load, 2) is False
    assert server.uses_loadgen(Load(mode="server", max_latency=1.0, generator="tessera"), 1) is False
    asked = Load(mode="server", max_latency=1.0, generator="loadgen")
    if installed:
        assert server.uses_loadgen(asked, 1)
        with pytest.raises(TesseraError, match="asks one replica"):
            server.uses_loadgen(asked, 2)
    else:
        with pytest.raises(MissingExtra, match=r"tessera\[loadgen\]"):
            server.uses_loadgen(asked, 1)
