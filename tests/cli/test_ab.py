"""Comparisons of interpreters: what their intervals say of many operators, and runs that are not their own."""

from __future__ import annotations

import argparse

import pytest

from tessera.cli.ab_command import QUICK, THOROUGH, Effort, _side, _verdict, configure
from tessera.cli.main import main
from tessera.launch.alternate import CONFIDENCE, Alternated
from tessera.results.store import Store


@pytest.mark.parametrize("effort", [QUICK, THOROUGH])
@pytest.mark.parametrize("operators", [1, 50, 1000])
def test_equal_launches_are_the_same_and_a_change_beyond_the_threshold_is_called(effort: Effort, operators: int):
    confidence = 1 - (1 - CONFIDENCE) / operators
    for ratio, verdict in ((0.0, "same"), (0.05, "slower"), (-0.05, "faster")):
        launches = tuple(ratio + 0.0001 * (number % 5) for number in range(40))
        found = Alternated(log_ratios=launches, a=(), b=(), stopped_by="target", interpreters=effort.interpreters)
        assert _verdict(found, effort.threshold, confidence) == verdict


def test_the_run_of_another_command_is_not_gone_on_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Store("tessera.sqlite") as store:
        store.start_run("night", command="tessera ops --suite nightly", suite="ops nightly")
    assert main(["ab", "add", "--resume", "--run-name", "night", "--store", "tessera.sqlite"]) == 2
    assert "this run is of another command" in capsys.readouterr().err
    with Store("tessera.sqlite") as store:
        assert not store.run("night").finished


def test_a_variable_of_threads_counts_for_the_cores_of_its_side(capsys):
    parser = argparse.ArgumentParser()
    configure(parser)
    args = parser.parse_args(["add", "--env-b", "OMP_NUM_THREADS=2"])
    assert [_side(args, which).threads for which in "ab"] == [1, 2]
    assert main(["ab", "add", "--env-a", "OMP_NUM_THREADS=2", "--env-a", "MKL_NUM_THREADS=3"]) == 2
    assert "the threads of a side: got '2 and 3'" in capsys.readouterr().err
