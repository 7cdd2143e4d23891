"""Tests of `tessera phases`: metrics, profile, advice, and one-line error messages."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.cli.phases_command import write_profile_pages
from tessera.phased.tables import write_phases
from tessera.report.record_tables import print_records
from tessera.results.store import Store

pytestmark = pytest.mark.timeout(180)
SMALL_CHAIN = (
    "--dsize",
    "32",
    "--num-layers",
    "3",
    "--batch-size",
    "2",
    "--batches-per-step",
    "4",
    "--iters",
    "2",
    "--launches",
    "1",
)


def read_keys(capsys) -> list[str]:
    return re.findall(r"phases/\S+\[[^\]]*\]", capsys.readouterr().out)


def test_default_option_values(capsys):
    assert main(["phases", "--list"]) == 0
    (key,) = read_keys(capsys)
    for word in ("batch_size=32", "dsize=250", "num_layers=3", "batches_per_step=100", "dtype=float16"):
        assert word in key
    with pytest.raises(SystemExit, match="0"):
        main(["phases", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "(default: 5; with --quick 2)" in help_text
    assert "(default: ./)" in help_text


def test_options_take_several_values(capsys):
    assert main(["phases", "--schedule", "all", "--batch-size", "1,8", "--list"]) == 0
    assert len(read_keys(capsys)) == 12
    assert main(["phases", "--sharded-execution", "--list"]) == 0
    assert "schedule=sharded" in read_keys(capsys)[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--num-layers", "0"], "--num-layers: got 0; allowed: 1 or more"),
        (["--dsize", "big"], "not a whole number"),
        (["--dsize", ","], "--dsize has no values"),
        (["--dtype", "int16"], "unknown dtype: got 'int16'"),
        (["--schedule", "phasd"], "unknown schedule"),
        (["--schedule", "phased", "--sharded-execution"], "not allowed with argument"),
        (["--weight-budget", "much"], "invalid size in bytes"),
        (
            ["--budget", "32MB"],
            "--budget is the sampling time, not a size in bytes: got '32MB'; "
            "set the working memory for weights with --weight",
        ),
        (["--store", "host"], "set the storage of weights with --weight-store"),
        (["--results", "kept.sqlite"], "--results was renamed to --store"),
        (["--devices", "2", "--schedule", "overlapped"], "overlapped runs on one device"),
        (["--weight-store", "host", "--cold"], "--cold applies only to --weight-store disk"),
        (["--model", "resnet5"], "did you mean resnet50"),
        (["--model", "resnet50", "--dsize", "3"], "--dsize applies only to chain"),
        (["--weights", "file"], "--weights applies only to --model"),
        (["--model", "resnet18", "--weights", "none"], "the weights file does not exist: got 'none'"),
        (["--iters", "0"], "--iterations: got 0; allowed: 1 or more"),
        (["--warmup", "-1"], "--warmup: got -1; allowed: 0 or more"),
        (["--launches", "0"], "launches: got 0"),
        (["--schedule", "resident", "--advise"], "--advise applies only to schedules that stream weights"),
        (["--profile", "--profile-dir", "/dev/null/here"], "cannot write the profile: Not a directory"),
        (["--workers", "processes"], "--workers was removed: got 'processes'; leave it out: devices are threads"),
        (["--activations", "64MB"], "--activations was removed: got '64MB'; lower --batches-per-step"),
        (["--ranks", "2"], "unrecognized arguments: --ranks"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(["phases", *words]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("tessera: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_run_prints_its_figures_and_advice(capsys):
    assert main(["phases", *SMALL_CHAIN, "--advise", "--store", "kept.sqlite", "--run-name", "mine"]) == 0
    shown = capsys.readouterr().out
    # float16: 2 b D^3 FLOPs over 2 D^2 bytes, four mini-batches per load
    per_byte = f"FLOPs / byte loaded for each phase from Streaming Memory: {4 * 2 * 32} (64 for each of 4 mini-batches)"
    assert per_byte in shown
    assert len(re.findall(r"^\S+ s/iter\. \S+ items/s\.$", shown, re.MULTILINE)) == 2
    assert "float16 stored and streamed, float32 computed" in shown
    assert "3 phases in" in shown
    assert "this host, warm disk" in shown
    assert "6,510" in shown
    assert "3,750 to 7,500" in shown
    assert re.search(r"bound by (I/O|compute)|balanced", shown)
    assert "batch size x matrix size: 64 with 4 mini-batches per load, balanced at " in shown
    with Store("kept.sqlite") as store:
        (record,) = store.read_records(store.get_run("mine"))
    assert record.metrics["bytes"].value == 3 * 32 * 32 * 2


def test_a_profile_runs_one_iteration_and_every_format_shows_its_cases(capsys):
    words = ["phases", *SMALL_CHAIN, "--iters", "4", "--schedule", "phased,sequential,resident", "--profile"]
    assert main([*words, "--profile-dir", "out", "--json"]) == 0
    captured = capsys.readouterr()
    assert "--profile runs one iteration" in captured.err
    assert "timeline.html" in captured.err
    schedules = [record["case"]["params"]["schedule"] for record in json.loads(captured.out)["records"]]
    assert schedules == ["phased", "sequential", "resident"]
    folder = Path("out") / "phases-profile"
    assert sorted(path.name for path in folder.iterdir()) == ["profile.json", "timeline.html", "trace.json"]
    profiles = json.loads((folder / "profile.json").read_text())
    assert len(profiles) == 3
    for name, profile in profiles.items():
        assert len(profile["phases"]) == 3
        devices = {event["device"] for event in profile["events"]}
        assert devices == ({0, 1} if "schedule=phased" in name else {0})
    with Store(None) as store:
        run = store.get_run("latest")
        records = list(store.read_records(run))
    assert all(len(record.values) == 1 for record in records)
    write_phases(records, "markdown", sys.stdout, advise=True, profile=True)
    shown = capsys.readouterr().out
    assert "| schedule | store | devices |" in shown
    assert shown.count("| phase | layers |") == 3
    assert all(f"| {name} |" in shown for name in schedules)
    print_records(run, records, "csv", "out.csv")
    assert len(list(csv.DictReader(Path("out.csv").read_text().splitlines()))) == 3


def test_weights_beyond_the_budget_are_refused_with_a_remedy_and_without_a_profile(capsys):
    assert main(["phases", *SMALL_CHAIN, "--weight-budget", "1KB", "--profile", "--profile-dir", "out"]) == 2
    shown = capsys.readouterr()
    assert "does not fit into the budget" in shown.out
    assert "raise the budget to" in shown.out
    assert re.search(r"note: no profile of phases/chain\[.*\]: refused", shown.err)
    assert not Path("out").exists()
    Path("old.html").write_text("of another run")
    with Store(None) as store:
        write_profile_pages(list(store.read_records(store.get_run("latest"))), Path(), quiet=False)
    assert "note: . is unchanged: it holds files of another run" in capsys.readouterr().err


def test_options_without_effect_are_noted(capsys):
    assert main(["phases", "--list", "--profile-dir", "out"]) == 0
    assert "--profile-dir has no effect without --profile" in capsys.readouterr().err
