"""Energy counters as the kernel shows them, in a tree of files of our own."""

from __future__ import annotations

import os

import pytest

from tessera.inference.measures.energy import Counters, read_counters


def package(root, name: str, energy: int, *, domain: str = "package-0", limit: int = 262_143_328_850) -> None:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(f"{domain}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")


def test_packages_are_summed_but_neither_their_parts_nor_the_platform(tmp_path):
    package(tmp_path, "intel-rapl:0", 1_000_000)
    package(tmp_path, "intel-rapl:0:0", 700_000, domain="core")
    package(tmp_path, "intel-rapl:1", 2_000_000, domain="package-1")
    package(tmp_path, "intel-rapl:2", 9_000_000, domain="psys")
    before = read_counters(tmp_path)
    assert before is not None
    assert before.energy == (1_000_000, 2_000_000)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("4000000")
    after = read_counters(tmp_path)
    assert after is not None
    assert before.joules_until(after) == pytest.approx(3.0)


def test_a_counter_that_starts_again_loses_nothing():
    assert Counters((90,), (100,)).joules_until(Counters((15,), (100,))) == pytest.approx(25e-6)


def test_no_counters_is_no_energy(tmp_path):
    assert read_counters(tmp_path) is None
    assert read_counters(tmp_path / "nowhere") is None
    package(tmp_path, "intel-rapl:0", 9_000_000, domain="psys")
    assert read_counters(tmp_path) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_counters_that_may_not_be_read_are_no_energy(tmp_path):
    package(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").chmod(0)
    assert read_counters(tmp_path) is None
