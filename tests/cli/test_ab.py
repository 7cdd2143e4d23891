"""Tests of `tessera ab`: verdicts over many operators, refusal to resume another command's run, threads per side."""

from __future__ import annotations

import argparse

import pytest

from tessera.ab.bench import compute_joint_confidence, judge_series
from tessera.ab.runner import ABSeries
from tessera.cli.ab_command import OPTIONS, QUICK_EFFORT, THOROUGH_EFFORT, Effort, make_plan
from tessera.cli.main import main
from tessera.cli.options import add_options, finish_arguments
from tessera.results.record import Case
from tessera.results.store import Store


@pytest.mark.parametrize("effort", [QUICK_EFFORT, THOROUGH_EFFORT])
@pytest.mark.parametrize("operators", [1, 50, 1000])
def test_verdicts_are_same_within_the_threshold_and_slower_or_faster_beyond_it(effort: Effort, operators: int):
    confidence = compute_joint_confidence(operators)
    for ratio, verdict in ((0.0, "same"), (0.05, "slower"), (-0.05, "faster")):
        launches = tuple(ratio + 0.0001 * (number % 5) for number in range(40))
        series = ABSeries(log_ratios=launches, a=(), b=(), stopped_by="target", interpreters=effort.interpreters)
        assert judge_series(series, effort.threshold, confidence) == verdict


def test_the_run_of_another_command_cannot_be_resumed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Store("tessera.sqlite") as store:
        store.start_run("night", command="tessera ops --suite nightly", suite="ops nightly")
    assert main(["ab", "add", "--resume", "--run-name", "night", "--store", "tessera.sqlite"]) == 2
    assert "the run was started by another command" in capsys.readouterr().err
    with Store("tessera.sqlite") as store:
        assert not store.get_run("night").finished


def test_a_thread_count_variable_sets_the_threads_of_its_side(capsys):
    parser = argparse.ArgumentParser()
    add_options(parser, OPTIONS)
    args = parser.parse_args(["add", "--env-b", "OMP_NUM_THREADS=2"])
    finish_arguments(args)
    settings = make_plan(args, (Case(feature="ab", name="add"),)).settings
    assert (settings.a.threads, settings.b.threads) == (1, 2)
    assert main(["ab", "add", "--env-a", "OMP_NUM_THREADS=2", "--env-a", "MKL_NUM_THREADS=3"]) == 2
    assert "the thread variables of one side must all have the same number: got '2 and 3'" in capsys.readouterr().err
