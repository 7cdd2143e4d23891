"""`tessera phases` as a user types it: the figures, the profile, the advice, and one line for every mistake."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.cli.phases_command import write_pages
from tessera.cli.phases_tables import print_phases
from tessera.results.store import Store

pytestmark = pytest.mark.timeout(180)
SMALL = ("--dsize", "32", "--num-layers", "3", "--batch-size", "2", "--batches-per-step", "4", "--iters", "2")


def keys(capsys) -> list[str]:
    return re.findall(r"phases/\S+\[[^\]]*\]", capsys.readouterr().out)


def test_the_seeds_options_have_the_seeds_defaults(capsys):
    assert main(["phases", "--list"]) == 0
    (key,) = keys(capsys)
    for word in ("batch_size=32", "dsize=250", "num_layers=3", "batches_per_step=100", "dtype=float16"):
        assert word in key
    with pytest.raises(SystemExit, match="0"):
        main(["phases", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "iterations that are timed (default: 5)" in said
    assert "(default: ./)" in said


def test_options_take_several_values(capsys):
    assert main(["phases", "--schedule", "all", "--batch-size", "1,8", "--list"]) == 0
    assert len(keys(capsys)) == 12
    assert main(["phases", "--sharded-execution", "--list"]) == 0
    assert "schedule=sharded" in keys(capsys)[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--num-layers", "0"], "--num-layers: got 0; allowed: 1 or more"),
        (["--dsize", "big"], "not a number"),
        (["--dsize", ","], "no number"),
        (["--dtype", "int8"], "unknown dtype: got 'int8'"),
        (["--schedule", "phasd"], "unknown schedule"),
        (["--schedule", "phased", "--sharded-execution"], "say two things"),
        (["--budget", "much"], "not a size in bytes"),
        (["--devices", "2", "--schedule", "overlapped"], "overlapped runs on one device"),
        (["--store", "host", "--cold"], "--cold is of weights on disk"),
        (["--model", "resnet5"], "did you mean resnet50"),
        (["--model", "resnet50", "--dsize", "3"], "--dsize has no meaning for resnet50"),
        (["--weights", "file"], "--weights has no meaning for chain"),
        (["--model", "resnet18", "--weights", "none"], "no such file of weights: got 'none'"),
        (["--iters", "0"], "iterations is too small"),
        (["--warmup", "-1"], "warmup is too small"),
        (["--launches", "0"], "launches: got 0"),
        (["--schedule", "resident", "--advise"], "nothing is streamed here"),
        (["--profile", "--profile-dir", "/dev/null/here"], "cannot write the profile: Not a directory"),
        (["--workers", "processes", "--schedule", "all"], "devices of sequential and overlapped"),
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


def test_a_run_prints_the_lines_that_people_know_and_advice(capsys):
    assert main(["phases", *SMALL, "--advise", "--results", "kept.sqlite", "--run-name", "mine"]) == 0
    shown = capsys.readouterr().out
    # float16: 2 b D^3 FLOPs over 2 D^2 bytes, four mini-batches to a load
    per_byte = f"FLOPs / byte loaded for each phase from Streaming Memory: {4 * 2 * 32} (64 for each of 4 mini-batches)"
    assert per_byte in shown
    assert len(re.findall(r"^\S+ s/iter\. \S+ items/s\.$", shown, re.MULTILINE)) == 2
    assert "float16 stored and streamed, float32 computed" in shown
    assert "3 phases in" in shown
    assert "this host, warm disk" in shown
    assert "6,510" in shown
    assert "3,750 to 7,500" in shown
    assert re.search(r"bound by (I/O|compute)|balanced", shown)
    assert "b x D = 64, 4 mini-batches to a load" in shown
    with Store("kept.sqlite") as store:
        (record,) = store.records(store.run("mine"))
    assert record.metrics["bytes"].value == 3 * 32 * 32 * 2


def test_a_profile_is_of_one_iteration_and_every_form_shows_its_cases(capsys):
    words = ["phases", *SMALL, "--iters", "4", "--schedule", "phased,sequential,resident", "--profile"]
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
        run = store.run("latest")
        records = list(store.records(run))
    assert all(len(record.values) == 1 for record in records)
    print_phases(run, records, "markdown", None, advise=True, profile=True)
    shown = capsys.readouterr().out
    assert "| schedule | store | devices |" in shown
    assert shown.count("| phase | layers |") == 3
    assert all(f"| {name} |" in shown for name in schedules)
    print_phases(run, records, "csv", "out.csv", advise=False, profile=False)
    assert len(list(csv.DictReader(Path("out.csv").read_text().splitlines()))) == 3


def test_what_does_not_fit_the_budget_is_refused_with_what_to_do_and_has_no_profile(capsys):
    assert main(["phases", *SMALL, "--budget", "1KB", "--profile", "--profile-dir", "out"]) == 2
    shown = capsys.readouterr()
    assert "does not fit the budget" in shown.out
    assert "raise the budget to" in shown.out
    assert re.search(r"note: no profile of phases/chain\[.*\]: refused", shown.err)
    assert not Path("out").exists()
    Path("old.html").write_text("of another run")
    with Store(None) as store:
        write_pages(list(store.records(store.run("latest"))), Path(), quiet=False)
    assert "note: . is left as it was: what is in it is of another run" in capsys.readouterr().err


def test_options_without_effect_are_said_to_have_none(capsys):
    assert main(["phases", "--list", "--profile-dir", "out"]) == 0
    assert "--profile-dir has no effect without --profile" in capsys.readouterr().err
