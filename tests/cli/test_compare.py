"""Tests of `tessera compare`: verdicts in every format, filters, exit codes, and one-line error messages."""

import csv
import io
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.measure.samples import Samples
from tessera.results.export import to_json_text
from tessera.results.record import Case, Record
from tessera.results.store import Store

GOLDEN = Path(__file__).parent / "golden"

Compare = Callable[..., tuple[int, str, str]]


def make_record(name: str, level: float, *, spread: float = 0.002, torch: str = "2.13.0", **fields: object) -> Record:
    """Make a record with three launches at fixed values around `level`, without random noise."""
    launches = tuple(Samples(values=(level * (1 + spread * step),) * 3) for step in (-1, 0, 1))
    environment = {"fingerprint": "f", "libraries": {"torch": torch}}
    return Record(
        case=Case(feature="ops", name=name, params={"size": "small"}),
        **{"launches": launches, "environment": environment, **fields},  # type: ignore[arg-type]
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.sqlite"
    after = {"torch": "2.14.0"}
    with Store(path) as opened:
        main_run = opened.start_run("main", started="2026-11-14T08:00:00+00:00")
        branch = opened.start_run("branch", started="2026-11-15T08:00:00+00:00")
        opened.start_run("empty")
        for name in ("add", "conv2d", "matmul", "mean", "relu"):
            opened.add(main_run, make_record(name, 1e-5))
        for name, level in (("add", 1e-5), ("conv2d", 1.2e-5), ("matmul", 0.8e-5), ("mean", 1.033e-5)):
            opened.add(branch, make_record(name, level, **after))
        opened.add(branch, make_record("relu", 1e-5, spread=0.1, **after))
        opened.add(main_run, make_record("broken", 1.0))
        opened.add(branch, make_record("broken", 1.0, status="failed", reason="rank 1 died", **after))
        opened.add(main_run, make_record("gone", 1.0))
        opened.add(main_run, make_record("edited", 1.0))
        opened.add(branch, make_record("edited", 1.0, version="2", **after))
        same = opened.start_run("same")
        opened.add_all(same, opened.read_records(main_run))
    return path


@pytest.fixture
def compare(store: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["compare", "--store", str(store), *argv])
        return code, *capsys.readouterr()

    return run


def test_the_table_lists_changes_first(compare: Compare) -> None:
    code, out, err = compare("main", "branch")
    assert out == (GOLDEN / "compare.txt").read_text()
    assert (code, err) == (1, "")


def test_markdown(compare: Compare) -> None:
    code, out, _ = compare("main", "branch", "--markdown", "--all")
    assert out == (GOLDEN / "compare.md").read_text()
    assert code == 1


def test_csv_has_every_case(compare: Compare) -> None:
    _, out, _ = compare("main", "branch", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["key"], row["verdict"]) for row in rows] == [
        ("ops/add[size=small]", "same"),
        ("ops/conv2d[size=small]", "slower"),
        ("ops/matmul[size=small]", "faster"),
        ("ops/mean[size=small]", "unresolved"),
        ("ops/relu[size=small]", "unresolved"),
        ("ops/broken[size=small]", "newly failed"),
        ("ops/gone[size=small]", "only in A"),
        ("ops/edited[size=small]", "version"),
    ]
    assert float(rows[1]["ratio"]) == pytest.approx(1.2)
    assert float(rows[1]["low"]) < 1.2 < float(rows[1]["high"])


def test_json_output(compare: Compare, tmp_path: Path) -> None:
    code, out, _ = compare("main", "branch", "-o", str(tmp_path / "c.json"))
    assert (code, out) == (1, "")
    comparison = json.loads((tmp_path / "c.json").read_text())
    assert (comparison["a"]["name"], comparison["b"]["name"]) == ("main", "branch")
    assert [c["verdict"] for c in comparison["cases"]] == ["same", "slower", "faster", "unresolved", "unresolved"]
    assert [a["kind"] for a in comparison["apart"]] == ["newly failed", "only in A", "version"]
    assert comparison["software"] == [{"name": "libraries.torch", "before": "2.13.0", "after": "2.14.0"}]


def test_filters(compare: Compare) -> None:
    assert compare("main", "branch", "--name", "m*")[0] == 0
    assert compare("main", "branch", "--name", "conv*")[0] == 1
    assert compare("main", "branch", "--feature", "ops", "--name", "add")[0] == 0


def test_changes_within_a_wide_threshold_are_not_regressions(compare: Compare) -> None:
    assert compare("main", "branch", "--threshold", "30%", "--name", "[!b]*")[0] == 0


def test_only_unresolved_cases_have_their_own_exit_code(compare: Compare) -> None:
    code, out, err = compare("main", "branch", "--name", "relu")
    assert (code, "unresolved" in out) == (3, True)
    assert "every case is unresolved" in err
    assert "--launches 5" in err


def test_newly_failed_is_a_regression_even_when_nothing_compares(compare: Compare) -> None:
    assert compare("main", "branch", "--name", "broken")[0] == 1


def test_exported_files_can_be_compared(compare: Compare, store: Path, tmp_path: Path) -> None:
    with Store(store) as opened:
        run = opened.get_run("branch")
        (tmp_path / "b.json").write_text(to_json_text(run, opened.read_records(run)))
    from_file, from_store = (
        compare("main", str(tmp_path / "b.json"), "--csv"),
        compare("main", "branch", "--csv"),
    )
    assert from_file == from_store
    code, out, _ = compare("main", str(tmp_path / "b.json"), "--name", "add", "--csv")
    assert (code, out.count("ops/add")) == (0, 1)


def test_runs_can_be_named_latest(compare: Compare) -> None:
    assert compare("latest", "latest", "--csv")[0] == 0
    assert compare("main", "latest", "--csv") == compare("main", "same", "--csv")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["main", "brnch"], 2, "no such run in .*: got 'brnch'; did you mean branch?"),
        (["main", "zzz"], 2, "no such run in .*: got 'zzz'; the newest are same, empty, branch"),
        (
            ["main", "branch", "--threshold", "abc"],
            2,
            "--threshold: not a fraction: got 'abc'; allowed: for example 3%",
        ),
        (["main", "branch", "--threshold=-3%"], 2, "not a fraction: got '-3%'"),
        (
            ["main", "branch", "--threshold", "3"],
            2,
            "not a fraction: got '3'; allowed: for example 3% or 0.03",
        ),
        (["main", "branch", "--threshold", "nan"], 2, "not a fraction"),
        (["main", "branch", "--json", "--csv"], 2, "not allowed with argument"),
        (["main", "branch", "-o", "/nowhere/x.md"], 2, "-o: the directory does not exist"),
        (["main", "absent.json"], 2, "cannot read the file: No such file"),
        (["main", "empty"], 3, "run B has no cases: got 'empty'"),
        (["main", "branch", "--feature", "halo"], 3, "run A has no cases that match --feature and --name: got 'main'"),
        (["main", "branch", "--name", "edited"], 3, "have no comparable case in common: got '1 version'"),
    ],
)
def test_bad_input_is_a_one_line_error(compare: Compare, argv: list[str], code: int, message: str) -> None:
    exit_code, _, err = compare(*argv)
    assert exit_code == code
    assert err.startswith("tessera: ")
    assert err.count("\n") == 1
    assert re.search(message, err)


def write_newer_store(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("words" * 1000), "is not a Tessera store"),
        (write_newer_store, "has a newer schema: got 99; allowed: up to 2; upgrade tessera"),
        (lambda path: path.mkdir(), "the path of the store is a directory"),
        (lambda path: None, "the store does not exist"),
    ],
)
def test_bad_stores_are_a_one_line_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "x.sqlite"
    make(path)
    assert main(["compare", "a", "b", "--store", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.timeout(60)
def test_the_command_imports_no_heavy_library(store: Path) -> None:
    program = (
        "import sys; from tessera.cli.main import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'scipy.stats', 'plotly', 'pyarrow', 'psutil') if m in sys.modules])"
    )
    argv = ["compare", "main", "branch", "--store", str(store)]
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
