"""`tessera history` as a user types it: charts, files, alerts and their exit codes, one line for every mistake."""

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
FIRST = datetime(2026, 9, 1, 3, tzinfo=UTC)
RUNS = 40

Tessera = Callable[..., tuple[int, str, str]]


def record(name: str, level: float, *, feature: str = "ops", fingerprint: str = "f", **params: object) -> Record:
    return Record(
        case=Case(feature=feature, name=name, params=params),
        launches=tuple(Samples(values=(level * (1 + 0.002 * step),) * 3) for step in (-1, 0, 1)),
        metrics={"time": Metric(level, "s", "lower"), "peak": Metric(4096.0, "B", "lower")},
        environment={"fingerprint": fingerprint},
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty nights: matmul got slower at night 25, relu faster at 12, conv2d slower two nights ago on one backend."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(7)
    with (
        Store(folder / "s.sqlite") as store,
        Store(folder / "short.sqlite") as short,
        Store(folder / "calm.sqlite") as calm,
    ):
        for night in range(RUNS):
            started = (FIRST + timedelta(days=night)).isoformat()
            conditions = "old" if night < 4 else "f"

            def noisy(level: float) -> float:
                return float(level * (1 + rng.normal(0, 0.01)))

            records = [
                record(
                    "matmul",
                    noisy(1e-3 if night < 25 else 1.08e-3),
                    backend="torch",
                    size="small",
                    fingerprint=conditions,
                ),
                record("relu", noisy(2e-5 if night < 12 else 1.7e-5), backend="torch", size="small"),
                record("conv2d", noisy(4e-3 if night < 38 else 4.6e-3), backend="torch", size="medium"),
                record("conv2d", noisy(3e-3), backend="jax", size="medium"),
                record("exchange", noisy(5e-4), feature="halo", ranks=2),
            ]
            run = store.start_run(f"night-{night:02}", suite="nightly", started=started)
            store.add_all(run, records)
            calm.add_all(calm.start_run(run.name, suite="nightly", started=started), records[3:])
            if night < 5:
                short.add_all(short.start_run(run.name, started=started), records)
    Store(folder / "empty.sqlite").close()
    return folder


@pytest.fixture
def tessera(stores: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tessera:
    monkeypatch.setenv("COLUMNS", "80")

    def run(*argv: str, store: str = "s") -> tuple[int, str, str]:
        code = main(["history", *argv, "--store", str(stores / f"{store}.sqlite")])
        return code, *capsys.readouterr()

    return run


def test_a_case_is_drawn_with_its_change(tessera: Tessera) -> None:
    code, out, err = tessera("matmul")
    assert (code, err) == (0, "")
    assert out == (GOLDEN / "history.txt").read_text()
    assert max(map(len, out.splitlines())) <= 80


def test_many_cases_are_a_table(tessera: Tessera) -> None:
    code, out, _ = tessera("*")
    assert code == 0
    assert out == (GOLDEN / "histories.txt").read_text()


def test_markdown(tessera: Tessera) -> None:
    _, out, _ = tessera("conv2d", "--markdown", "--all")
    assert out == (GOLDEN / "history.md").read_text()


def keys(out: str) -> list[str]:
    return [series["key"] for series in json.loads(out)["series"]]


def test_names_globs_features_whole_cases_and_filters(tessera: Tessera) -> None:
    whole = "ops/conv2d[backend=jax,size=medium]"
    assert keys(tessera("halo/exchange", "--json")[1]) == ["halo/exchange[ranks=2]"]
    assert len(keys(tessera("conv*", "--json")[1])) == 2
    assert len(keys(tessera("ops/*", "--json")[1])) == 4
    assert keys(tessera("conv2d", "--backend", "jax", "--json")[1]) == [whole]
    assert keys(tessera("conv2d", "backend=jax,numpy", "--json")[1]) == [whole]
    assert keys(tessera("*", "ranks=2", "--json")[1]) == ["halo/exchange[ranks=2]"]
    assert keys(tessera(whole, "--json")[1]) == [whole]
    assert len(keys(tessera(whole, "relu", "--json")[1])) == 2


def test_json_has_points_changes_and_what_is_apart(tessera: Tessera) -> None:
    found = json.loads(tessera("matmul", "--json")[1])
    (series,) = found["series"]
    (change,) = series["changes"]
    assert (change["run"], change["harmful"]) == ("night-25", True)
    assert change["change"] == pytest.approx(0.08, abs=0.015)
    assert len(series["points"]) == RUNS - 4
    assert [apart["why"] for apart in found["apart"]] == ["conditions"] * 4


def test_csv_has_a_row_for_each_run(tessera: Tessera) -> None:
    rows = list(csv.DictReader(io.StringIO(tessera("relu", "--csv")[1])))
    assert len(rows) == RUNS
    assert [row["run"] for row in rows if row["change"]] == ["night-12"]


def test_another_metric_and_the_last_runs(tessera: Tessera) -> None:
    found = json.loads(tessera("relu", "--metric", "peak", "--last", "10", "--json")[1])
    (series,) = found["series"]
    assert (series["unit"], len(series["points"]), series["changes"]) == ("B", 10, [])


def test_a_page_of_the_reports_blocks(tessera: Tessera, tmp_path: Path) -> None:
    target = tmp_path / "history.html"
    code, out, _ = tessera("*", "-o", str(target))
    assert (code, out) == (0, f"history: {target}\n")
    text = target.read_text()
    assert '<section id="history"' in text
    assert "night-25" in text
    assert "under other conditions than the newest" in text


@pytest.mark.parametrize("suffix", ["json", "csv", "md"])
def test_the_suffix_chooses_the_form(tessera: Tessera, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"h.{suffix}"
    form = {"md": "markdown"}.get(suffix, suffix)
    assert tessera("relu", "-o", str(target))[:2] == (0, "")
    assert target.read_text() == tessera("relu", f"--{form}")[1]


def test_alerts_are_the_new_regressions(tessera: Tessera) -> None:
    code, out, _ = tessera("--alerts")
    assert code == 1
    assert out == (GOLDEN / "alerts.txt").read_text()
    found = json.loads(tessera("--alerts", "--newest", "20", "--json")[1])
    assert [alert["key"] for alert in found["alerts"]] == [
        "ops/conv2d[backend=torch,size=medium]",
        "ops/matmul[backend=torch,size=small]",
    ]
    rows = list(csv.DictReader(io.StringIO(tessera("--alerts", "--csv")[1])))
    assert [float(row["change"]) for row in rows] == [pytest.approx(0.15, abs=0.03)]


def test_no_alert_is_exit_code_0(tessera: Tessera) -> None:
    assert tessera("--alerts", store="calm")[0] == 0
    assert tessera("--alerts", "conv2d", "--backend", "jax")[0] == 0
    assert tessera("--alerts", "--threshold", "30%")[0] == 0


@pytest.mark.parametrize(
    ("argv", "store", "code", "message"),
    [
        ([], "s", 2, "no case named: name one or a glob"),
        (["matmull"], "s", 2, "no such case in the store: got 'matmull'; did you mean matmul?"),
        (["relu", "zzz"], "s", 2, "no such case in the store: got 'zzz'"),
        (["matmul", "--metric", "tme"], "s", 2, "has this metric: got 'tme'; allowed: peak, time"),
        (["matmul", "--metric", 'a"b'], "s", 2, "not a name of a metric"),
        (["matmul", "--last", "0"], "s", 2, "--last: got 0; allowed: 1 or more"),
        (["--alerts", "--newest", "-1"], "s", 2, "--newest: got -1; allowed: 2 or more"),
        (["matmul", "--threshold", "much"], "s", 2, "not a fraction"),
        (["matmul", "-o", "/nowhere/h.html"], "s", 2, "cannot write the report"),
        (["matmul"], "absent", 2, "there is no store here"),
        (["matmul", "--dtype", "float64"], "s", 3, "has these parameters: got 'dtype=float64'"),
        (
            ["--alerts"],
            "short",
            3,
            "no history to judge: got '5 comparable runs of a case at most'; allowed: 8 or more",
        ),
        (["--alerts"], "empty", 3, "the store holds no records"),
    ],
)
def test_a_mistake_is_one_line(tessera: Tessera, argv: list[str], store: str, code: int, message: str) -> None:
    got, _, err = tessera(*argv, store=store)
    assert got == code
    assert err.startswith("tessera: ")
    assert err.count("\n") == 1
    assert re.search(message, err)


@pytest.mark.timeout(60)
def test_the_command_loads_nothing_heavy(stores: Path) -> None:
    program = (
        "import sys; from tessera.cli.main import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'plotly', 'pyarrow', 'psutil', 'matplotlib') if m in sys.modules])"
    )
    argv = ["history", "--alerts", "--store", str(stores / "calm.sqlite")]
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
