"""Tests of schedules and stores: their traits are complete, and code reads traits instead of names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tessera.phased
from tessera.phased.choices import DEFAULT_SCHEDULES, SCHEDULES, STORES

SOURCE = Path(tessera.phased.__file__).parent


@pytest.mark.parametrize("traits", SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_has_consistent_traits(traits):
    least, most = traits.count_buffers(2)
    assert 0 <= least <= most
    assert traits.several_devices or traits.computes_together == "never"
    assert not (traits.holds_all_weights and traits.overlaps_loads)
    assert traits.count_computing_devices(1, batches=4) == 1


def test_there_is_one_baseline_and_defaults_for_one_and_several_devices():
    assert [name for name, traits in SCHEDULES.items() if traits.is_baseline] == ["sequential"]
    assert [SCHEDULES[name].several_devices for name in DEFAULT_SCHEDULES] == [False, True]


def test_listing_the_choices_imports_no_torch():
    code = "import sys, tessera.phased.choices; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_code_compares_names_of_schedules_or_stores():
    names = {*SCHEDULES, *STORES}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                literals = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
                assert not literals & names, f"{path}:{node.lineno}"
