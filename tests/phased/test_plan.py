"""Tests of planning: phases are chosen by the calibrated rates of the host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from tessera.machine import Link, save_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.phased import PhasedModel
from tessera.phased.choices import STORES
from tessera.phased.plan import DEFAULT_FLOPS_PER_BYTE, get_host_balance
from tests.phased.bench.test_metrics import MACHINE


@pytest.fixture(autouse=True)
def isolate_host(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))


def compute_balance(store: str, *, cold: bool, dtype: str, cores: int) -> float:
    return get_host_balance(STORES[store], cold, dtype, cores)


def test_the_balance_depends_on_the_host_and_the_computing_cores():
    for store, cold in (("disk", True), ("disk", False), ("host", False)):
        assert (
            compute_balance(store, cold=cold, dtype="float32", cores=1)
            == DEFAULT_FLOPS_PER_BYTE[STORES[store].get_link(cold=cold)]
        )
    save_host(MACHINE, compute_host_fingerprint(describe_environment()))
    assert compute_balance("disk", cold=True, dtype="float32", cores=1) == pytest.approx(1e9 / 1e6)
    assert compute_balance("disk", cold=False, dtype="float32", cores=2) == pytest.approx(2e9 / 4e6)
    assert compute_balance("mapped", cold=False, dtype="float32", cores=2) == pytest.approx(2e9 / 4e6)
    assert compute_balance("host", cold=False, dtype="float32", cores=9) == pytest.approx(2e9 / 1e9)
    assert compute_balance("disk", cold=True, dtype="float64", cores=1) == DEFAULT_FLOPS_PER_BYTE["streaming"]


@pytest.mark.parametrize(("flops", "begins"), [(5e9, ["0", "4", "7"]), (1e15, ["0", "3", "7"])])
def test_a_compute_heavy_layer_is_placed_to_hide_a_load(flops, begins):
    """Layer 3 has few weights and many FLOPs; on a slow host, the previous load overlaps with its computation."""
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
    links = {link: Link(bandwidth=(1e9,)) for link in DEFAULT_FLOPS_PER_BYTE}
    host = replace(MACHINE, flops={"float32": (flops, 2 * flops)}, links=links)
    save_host(host, compute_host_fingerprint(describe_environment()))
    with PhasedModel(network, input_shape=(1, 1024), budget="17MB", keep=False, threads=1) as phased:
        assert [phase.modules[0] for phase in phased.phases] == begins
