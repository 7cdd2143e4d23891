"""Where a network is cut follows the rates of this host, where they were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from tessera.machine import Link, save_host
from tessera.measure.environment import environment, host_fingerprint
from tessera.phased import PhasedModel
from tessera.phased.host import LINKS, USUAL, balance
from tests.phased.bench.test_prediction import MACHINE


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))


def test_the_balance_is_that_of_the_host_and_of_the_cores_that_compute():
    for (store, cold), link in LINKS.items():
        assert balance(store, cold=cold, dtype="float32", cores=1) == USUAL[link]
    save_host(MACHINE, host_fingerprint(environment()))
    assert balance("disk", cold=True, dtype="float32", cores=1) == pytest.approx(1e9 / 1e6)
    assert balance("disk", cold=False, dtype="float32", cores=2) == pytest.approx(2e9 / 4e6)
    assert balance("mapped", cold=False, dtype="float32", cores=2) == pytest.approx(2e9 / 4e6)
    assert balance("host", cold=False, dtype="float32", cores=9) == pytest.approx(2e9 / 1e9)
    assert balance("disk", cold=True, dtype="float64", cores=1) == USUAL["streaming"]


@pytest.mark.parametrize(("flops", "begins"), [(5e9, ["0", "4", "7"]), (1e15, ["0", "3", "7"])])
def test_a_layer_that_computes_is_put_where_a_load_can_hide_behind_it(flops, begins):
    """Layer 3 has few weights and many FLOPs. The load before it hides behind them, unless they take no time at all."""
    network = nn.Sequential(
        nn.Linear(1024, 1024),
        nn.Unflatten(1, (1, 32, 32)),
        nn.Upsample(scale_factor=4),
        nn.Conv2d(1, 64, 3, padding=1),
        nn.Conv2d(64, 512, 3, stride=8, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 2560),
    ).eval()
    links = {link: Link(bandwidth=(1e9,)) for link in USUAL}
    host = replace(MACHINE, flops={"float32": (flops, 2 * flops)}, links=links)
    save_host(host, host_fingerprint(environment()))
    with PhasedModel(network, input_shape=(1, 1024), budget="17MB", keep=False, threads=1) as phased:
        assert [phase.modules[0] for phase in phased.phases] == begins
