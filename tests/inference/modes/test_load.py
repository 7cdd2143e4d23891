"""Tests of the options of each load mode."""

from __future__ import annotations

import pytest

from tessera.errors import MissingExtra, TesseraError
from tessera.inference.modes import load_modes
from tessera.inference.modes.load import Load


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "batch"}, "unknown mode: got 'batch'"),
        ({"mode": "server"}, "add --max-latency"),
        ({"max_latency": 0.1}, "--max-latency applies only to --mode server"),
        ({"mode": "single-stream", "target_rate": 3.0}, "--target-rate applies only to --mode server"),
        ({"mode": "server", "max_latency": -1}, "--max-latency: got -1"),
        ({"generator": "me"}, "unknown load generator"),
        ({"generator": "loadgen"}, "--load-generator applies only to --mode server"),
    ],
)
def test_options_that_do_not_apply_to_the_mode_are_refused(given, says):
    with pytest.raises(TesseraError, match=says):
        Load(**given)


def test_default_options_are_not_case_parameters():
    assert Load().params() == {}
    assert Load(mode="server", max_latency=0.05, target_rate=10.0).params() == {
        "mode": "server",
        "target_rate": 10.0,
        "max_latency": 0.05,
    }


@pytest.mark.parametrize("installed", [False, True])
def test_loadgen_is_used_if_it_is_installed_and_there_is_one_replica(monkeypatch, installed):
    monkeypatch.setattr(load_modes, "find_spec", lambda name: object() if installed else None)
    load = Load(mode="server", max_latency=1.0)
    assert load_modes.should_use_loadgen(load, 1) is installed
    assert load_modes.should_use_loadgen(load, 2) is False
    assert load_modes.should_use_loadgen(Load(mode="server", max_latency=1.0, generator="tessera"), 1) is False
    requested = Load(mode="server", max_latency=1.0, generator="loadgen")
    if installed:
        assert load_modes.should_use_loadgen(requested, 1)
        with pytest.raises(TesseraError, match="supports only one replica"):
            load_modes.should_use_loadgen(requested, 2)
    else:
        with pytest.raises(MissingExtra, match=r"tessera\[loadgen\]"):
            load_modes.should_use_loadgen(requested, 1)
