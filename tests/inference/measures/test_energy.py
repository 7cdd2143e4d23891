"""Tests of the energy counters, on a synthetic sysfs tree."""

from __future__ import annotations

import os

import pytest

from tessera.inference.measures.throughput import EnergyCounters, read_energy_counters


def write_package(root, name: str, energy: int, *, domain: str = "package-0", limit: int = 262_143_328_850) -> None:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(f"{domain}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")


def test_only_package_counters_are_summed(tmp_path):
    write_package(tmp_path, "intel-rapl:0", 1_000_000)
    write_package(tmp_path, "intel-rapl:0:0", 700_000, domain="core")
    write_package(tmp_path, "intel-rapl:1", 2_000_000, domain="package-1")
    write_package(tmp_path, "intel-rapl:2", 9_000_000, domain="psys")
    before = read_energy_counters(tmp_path)
    assert before is not None
    assert before.energy == (1_000_000, 2_000_000)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("4000000")
    after = read_energy_counters(tmp_path)
    assert after is not None
    assert before.compute_joules(after) == pytest.approx(3.0)


def test_a_counter_that_wraps_around_is_corrected():
    assert EnergyCounters((90,), (100,)).compute_joules(EnergyCounters((15,), (100,))) == pytest.approx(25e-6)


def test_without_counters_there_is_no_energy(tmp_path):
    assert read_energy_counters(tmp_path) is None
    assert read_energy_counters(tmp_path / "nowhere") is None
    write_package(tmp_path, "intel-rapl:0", 9_000_000, domain="psys")
    assert read_energy_counters(tmp_path) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_counters_give_no_energy(tmp_path):
    write_package(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").chmod(0)
    assert read_energy_counters(tmp_path) is None
