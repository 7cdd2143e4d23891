"""Tests of `tessera export`: JSON, CSV, Markdown and Parquet files, imports, filters, and one-line error messages."""

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tessera.cli.main import main
from tessera.measure.samples import Samples
from tessera.results.export import EXPORT_COLUMNS
from tessera.results.record import Case, Record
from tessera.results.store import Store
from tests.results.synthetic import make_measured_record

GOLDEN = Path(__file__).parent / "golden"

Export = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.sqlite"
    with Store(path) as opened:
        run = opened.start_run("main", command="tessera suite quick")
        opened.add(
            run,
            Record(
                case=Case(feature="ops", name="add", params={"size": "small"}),
                launches=(Samples(values=(1e-5, 2e-5, 3e-5)), Samples(values=(2e-5, 2e-5))),
            ),
        )
        opened.add(run, Record(case=Case(feature="halo", name="ring"), status="timed_out", reason="after 9 s"))
        opened.finish_run(run)
        opened.start_run("empty")
    return path


@pytest.fixture
def export(store: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["export", "--store", str(store), *argv])
        return code, *capsys.readouterr()

    return run


def test_an_exported_json_file_can_be_imported(export: Export, store: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "run.json")
    assert export("main", "-o", file) == (0, "", f"2 records of main in {file}\n")
    assert export("--import", file, "--as", "copy") == (0, "", f"2 records of copy in {store}\n")
    with Store(store) as opened:
        original, copy = opened.get_run("main"), opened.get_run("copy")
        assert list(opened.read_records(original)) == list(opened.read_records(copy))
        assert (copy.command, copy.started, copy.finished) == (
            *(original.command, original.started),
            original.finished,
        )


def test_an_import_creates_its_store(tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "main", "--store", str(store), "-o", str(tmp_path / "run.json")]) == 0
    fresh = tmp_path / "deep" / "new.sqlite"
    assert main(["export", "--import", str(tmp_path / "run.json"), "--store", str(fresh)]) == 0
    with Store(fresh, create=False) as opened:
        assert [run.name for run in opened.list_runs()] == ["main"]


def test_csv_has_a_row_for_each_record(export: Export, tmp_path: Path) -> None:
    export("main", "-o", str(tmp_path / "run.csv"))
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(EXPORT_COLUMNS)
    assert [(row["key"], row["status"], row["median"]) for row in rows] == [
        ("ops/add[size=small]", "ok", "2e-05"),
        ("halo/ring", "timed_out", ""),
    ]


def test_markdown_and_terminal_tables(export: Export, tmp_path: Path) -> None:
    export("main", "-o", str(tmp_path / "run.md"))
    assert (tmp_path / "run.md").read_text() == (GOLDEN / "export.md").read_text()
    assert export("main", "-o", "-") == (0, (GOLDEN / "export.txt").read_text(), "")


def test_parquet(export: Export, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert export("latest~1", "-o", str(tmp_path / "run.parquet"))[0] == 0
    assert parquet.read_table(tmp_path / "run.parquet").column("samples").to_pylist() == [5, 0]


@pytest.mark.timeout(60)
def test_parquet_without_its_extra_says_what_to_install(store: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\nfrom tessera.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    argv = ["export", "main", "--store", str(store), "-o", str(tmp_path / "run.parquet")]
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "tessera: pyarrow is not installed: pip install 'tessera[parquet]'\n"


def test_filters(export: Export, tmp_path: Path) -> None:
    assert "1 records" in export("main", "--feature", "ops", "-o", str(tmp_path / "a.json"))[2]
    assert "1 records" in export("main", "--name", "r*", "-o", str(tmp_path / "a.json"))[2]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "a run and an output file are required"),
        (["main"], "a run and an output file are required"),
        (
            ["main", "-o", "x.xlsx"],
            r"unknown export format: got 'x.xlsx'; allowed: FILE.json, FILE.csv, FILE.md",
        ),
        (["main", "-o", "/nowhere/x.csv"], "-o: the directory does not exist"),
        (["mian", "-o", "x.json"], r"no such run in .*: got 'mian'; did you mean main\?"),
        (["empty", "-o", "x.json"], "the run has no records that match --feature and --name: got 'empty'"),
        (["main", "-o", "x.json", "--as", "y"], "--as applies only to --import"),
        (["--import", "absent.json"], "cannot read the file: No such file"),
        (["--import", "x.json", "-o", "y.json"], "--import cannot be combined with RUN or -o"),
    ],
)
def test_bad_input_is_a_one_line_error(export: Export, argv: list[str], message: str) -> None:
    code, out, err = export(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("tessera: ")
    assert err.count("\n") == 1
    assert re.search(message, err)


def test_an_import_under_an_existing_name_changes_nothing(export: Export, store: Path, tmp_path: Path) -> None:
    with Store(store) as opened:
        opened.add(opened.get_run("empty"), make_measured_record("x", 1.0, np.random.default_rng()))
    export("empty", "-o", str(tmp_path / "run.json"))
    code, _, err = export("--import", str(tmp_path / "run.json"), "--as", "main")
    assert (code, "a finished run of this name exists" in err) == (2, True)
    with Store(store) as opened:
        assert opened.count_statuses(opened.get_run("main")) == {"ok": 1, "timed_out": 1}
