"""Energy counters as the kernel shows them, in a tree of files of our own."""

from __future__ import annotations

import os

import pytest

from tessera.inference.measures.energy import Counters, read_counters


def package(root, name: str, energy: int, limit: int = 262_143_328_850) -> None:
    folder = root / name
    folder.mkdir()
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")


def test_packages_are_summed_and_their_parts_are_not(tmp_path):
    package(tmp_path, "intel-rapl:0", 1_000_000)
    package(tmp_path, "intel-rapl:0:0", 700_000)
    package(tmp_path, "intel-rapl:1", 2_000_000)
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_counters_that_may_not_be_read_are_no_energy(tmp_path):
    package(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").chmod(0)
    assert read_counters(tmp_path) is None
