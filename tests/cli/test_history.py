"""Tests of `tessera history`: charts, files, alerts and their exit codes, and one-line error messages."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from tessera.cli.main import main
from tessera.measure.samples import Samples
from tessera.results.record import Case, Metric, Record
from tessera.results.store import Store

GOLDEN = Path(__file__).parent / "golden"
FIRST_RUN_TIME = datetime(2026, 9, 1, 3, tzinfo=UTC)
RUN_COUNT = 40

RunHistory = Callable[..., tuple[int, str, str]]


def make_record(name: str, level: float, *, feature: str = "ops", fingerprint: str = "f", **params: object) -> Record:
    return Record(
        case=Case(feature=feature, name=name, params=params),
        launches=tuple(Samples(values=(level * (1 + 0.002 * step),) * 3) for step in (-1, 0, 1)),
        metrics={"time": Metric(level, "s", "lower"), "peak": Metric(4096.0, "B", "lower")},
        environment={"fingerprint": fingerprint},
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write stores with forty synthetic nightly runs.

    The time of matmul rises at night 25, relu gets faster at night 12, and conv2d slower at night 38 on one backend.
    """
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(7)
    with (
        Store(folder / "s.sqlite") as store,
        Store(folder / "short.sqlite") as short,
        Store(folder / "calm.sqlite") as calm,
    ):
        for night in range(RUN_COUNT):
            started = (FIRST_RUN_TIME + timedelta(days=night)).isoformat()
            conditions = "old" if night < 4 else "f"

            def add_noise(level: float) -> float:
                return float(level * (1 + rng.normal(0, 0.01)))

            records = [
                make_record(
                    "matmul",
                    add_noise(1e-3 if night < 25 else 1.08e-3),
                    backend="torch",
                    size="small",
                    fingerprint=conditions,
                ),
                make_record("relu", add_noise(2e-5 if night < 12 else 1.7e-5), backend="torch", size="small"),
                make_record("conv2d", add_noise(4e-3 if night < 38 else 4.6e-3), backend="torch", size="medium"),
                make_record("conv2d", add_noise(3e-3), backend="jax", size="medium"),
                make_record("exchange", add_noise(5e-4), feature="halo", ranks=2),
            ]
            run = store.start_run(f"night-{night:02}", suite="nightly", started=started)
            store.add_all(run, records)
            calm.add_all(calm.start_run(run.name, suite="nightly", started=started), records[3:])
            if night < 5:
                short.add_all(short.start_run(run.name, started=started), records)
    Store(folder / "empty.sqlite").close()
    return folder


@pytest.fixture
def run_history(stores: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunHistory:
    monkeypatch.setenv("COLUMNS", "80")

    def run(*argv: str, store: str = "s") -> tuple[int, str, str]:
        code = main(["history", *argv, "--store", str(stores / f"{store}.sqlite")])
        return code, *capsys.readouterr()

    return run


def test_a_case_is_drawn_with_its_change(run_history: RunHistory) -> None:
    code, out, err = run_history("matmul")
    assert (code, err) == (0, "")
    assert out == (GOLDEN / "history.txt").read_text()
    assert max(map(len, out.splitlines())) <= 80


def test_many_cases_are_a_table(run_history: RunHistory) -> None:
    code, out, _ = run_history("*")
    assert code == 0
    assert out == (GOLDEN / "histories.txt").read_text()


def test_markdown(run_history: RunHistory) -> None:
    _, out, _ = run_history("conv2d", "--markdown", "--all")
    assert out == (GOLDEN / "history.md").read_text()


def read_keys(out: str) -> list[str]:
    return [series["key"] for series in json.loads(out)["series"]]


def test_names_globs_features_whole_cases_and_filters(run_history: RunHistory) -> None:
    key = "ops/conv2d[backend=jax,size=medium]"
    assert read_keys(run_history("halo/exchange", "--json")[1]) == ["halo/exchange[ranks=2]"]
    assert len(read_keys(run_history("conv*", "--json")[1])) == 2
    assert len(read_keys(run_history("ops/*", "--json")[1])) == 4
    assert read_keys(run_history("conv2d", "--backend", "jax", "--json")[1]) == [key]
    assert read_keys(run_history("conv2d", "backend=jax,numpy", "--json")[1]) == [key]
    assert read_keys(run_history("*", "ranks=2", "--json")[1]) == ["halo/exchange[ranks=2]"]
    assert read_keys(run_history(key, "--json")[1]) == [key]
    assert len(read_keys(run_history(key, "relu", "--json")[1])) == 2


def test_json_has_points_changes_and_excluded_records(run_history: RunHistory) -> None:
    history = json.loads(run_history("matmul", "--json")[1])
    (series,) = history["series"]
    (change,) = series["changes"]
    assert (change["run"], change["harmful"]) == ("night-25", True)
    assert change["change"] == pytest.approx(0.08, abs=0.015)
    assert len(series["points"]) == RUN_COUNT - 4
    assert [apart["why"] for apart in history["apart"]] == ["conditions"] * 4


def test_csv_has_a_row_for_each_run(run_history: RunHistory) -> None:
    rows = list(csv.DictReader(io.StringIO(run_history("relu", "--csv")[1])))
    assert len(rows) == RUN_COUNT
    assert [row["run"] for row in rows if row["change"]] == ["night-12"]


def test_another_metric_and_the_last_runs(run_history: RunHistory) -> None:
    history = json.loads(run_history("relu", "--metric", "peak", "--last", "10", "--json")[1])
    (series,) = history["series"]
    assert (series["unit"], len(series["points"]), series["changes"]) == ("B", 10, [])


def test_a_page(run_history: RunHistory, tmp_path: Path) -> None:
    target = tmp_path / "history.html"
    code, out, _ = run_history("*", "-o", str(target))
    assert (code, out) == (0, f"history: {target}\n")
    text = target.read_text()
    assert '<section id="history"' in text
    assert "night-25" in text
    assert "under other conditions than the newest" in text


@pytest.mark.parametrize("suffix", ["json", "csv", "md"])
def test_the_file_suffix_selects_the_format(run_history: RunHistory, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"h.{suffix}"
    form = {"md": "markdown"}.get(suffix, suffix)
    assert run_history("relu", "-o", str(target))[:2] == (0, "")
    assert target.read_text() == run_history("relu", f"--{form}")[1]


def test_alerts_are_the_new_regressions(run_history: RunHistory) -> None:
    code, out, _ = run_history("--alerts")
    assert code == 1
    assert out == (GOLDEN / "alerts.txt").read_text()
    history = json.loads(run_history("--alerts", "--newest", "20", "--json")[1])
    assert [alert["key"] for alert in history["alerts"]] == [
        "ops/conv2d[backend=torch,size=medium]",
        "ops/matmul[backend=torch,size=small]",
    ]
    rows = list(csv.DictReader(io.StringIO(run_history("--alerts", "--csv")[1])))
    assert [float(row["change"]) for row in rows] == [pytest.approx(0.15, abs=0.03)]


def test_no_alert_is_exit_code_0(run_history: RunHistory) -> None:
    assert run_history("--alerts", store="calm")[0] == 0
    assert run_history("--alerts", "conv2d", "--backend", "jax")[0] == 0
    assert run_history("--alerts", "--threshold", "30%")[0] == 0


@pytest.mark.parametrize(
    ("argv", "store", "code", "message"),
    [
        ([], "s", 2, "no case is given: give a name or a glob"),
        (["matmull"], "s", 2, "no such case in the store: got 'matmull'; did you mean matmul?"),
        (["relu", "zzz"], "s", 2, "no such case in the store: got 'zzz'"),
        (["matmul", "--metric", "tme"], "s", 2, "has this metric: got 'tme'; allowed: peak, time"),
        (["matmul", "--metric", 'a"b'], "s", 2, "no record of these cases has this metric"),
        (["matmul", "--last", "0"], "s", 2, "--last: got 0; allowed: 1 or more"),
        (["--alerts", "--newest", "-1"], "s", 2, "--newest: got -1; allowed: 2 or more"),
        (["matmul", "--threshold", "much"], "s", 2, "not a fraction"),
        (["matmul", "-o", "/nowhere/h.html"], "s", 2, "-o: the directory does not exist"),
        (["matmul"], "absent", 2, "the store does not exist"),
        (["matmul", "--dtype", "float64"], "s", 3, "has these parameters: got 'dtype=float64'"),
        (
            ["--alerts"],
            "short",
            3,
            "too few runs to detect changes: got 'at most 5 comparable runs per case'; allowed: 8 or more",
        ),
        (["--alerts"], "empty", 3, "the store holds no records"),
    ],
)
def test_a_mistake_is_one_line(run_history: RunHistory, argv: list[str], store: str, code: int, message: str) -> None:
    exit_code, _, err = run_history(*argv, store=store)
    assert exit_code == code
    assert err.startswith("tessera: ")
    assert err.count("\n") == 1
    assert re.search(message, err)


@pytest.mark.timeout(60)
def test_the_command_imports_no_heavy_library(stores: Path) -> None:
    program = (
        "import sys; from tessera.cli.main import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'plotly', 'pyarrow', 'psutil', 'matplotlib') if m in sys.modules])"
    )
    argv = ["history", "--alerts", "--store", str(stores / "calm.sqlite")]
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
