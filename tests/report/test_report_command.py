"""Tests of `tessera report`: pages of one and several runs, exported files, and one-line error messages."""

from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.report.runs import RunView
from tessera.results.export import to_json_text
from tessera.results.store import Store
from tests.report.synthetic import make_plausible_run


def store_runs(path: Path, *views: RunView) -> str:
    with Store(path) as store:
        for view in views:
            run = store.start_run(view.name, command=view.command)
            store.add_all(run, view.records)
            store.finish_run(run)
    return str(path)


def test_two_runs_become_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = store_runs(
        tmp_path / "s.sqlite", make_plausible_run("before", launches=3), make_plausible_run("after", launches=3)
    )
    target = tmp_path / "out.html"
    assert main(["report", "before", "latest", "--store", store, "-o", str(target), "--threshold", "5%"]) == 0
    assert capsys.readouterr().out == f"report: {target}\n"
    text = target.read_text()
    assert "after against before" in text
    assert "threshold of 5.0%" in text


def test_the_latest_run_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_runs(tmp_path / "s.sqlite", make_plausible_run("older"), make_plausible_run("newer"))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--store", store]) == 0
    assert "<h1>newer</h1>" in (tmp_path / "report.html").read_text()
    assert main(["report", "--list", "--store", store]) == 0
    assert "older" in capsys.readouterr().out


def test_exported_runs_with_the_same_name_are_labelled_by_file(tmp_path: Path) -> None:
    with Store(store_runs(tmp_path / "s.sqlite", make_plausible_run("nightly", launches=3))) as store:
        run = store.get_run("nightly")
        text = to_json_text(run, store.read_records(run))
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        file.write_text(text)
    target = tmp_path / "out.html"
    assert main(["report", *map(str, files), "-o", str(target)]) == 0
    assert "two.json against" in target.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "no such run"),
        (["nightly", "latest"], "a run is given twice"),
        (["nightly", "--threshold", "abc"], "not a fraction"),
        (["nightly", "-o", "missing/report.html"], "-o: the directory does not exist"),
        (["nightly", "--store", "missing.sqlite"], "the store does not exist"),
        (["missing.json"], "missing.json"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESSERA_STORE", store_runs(tmp_path / "s.sqlite", make_plausible_run("nightly")))
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_a_run_without_records_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = store_runs(tmp_path / "s.sqlite", RunView(name="empty", created="", command="", records=[]))
    assert main(["report", "--store", store, "-o", str(tmp_path / "x.html")]) == 2
    assert "the runs have no records" in capsys.readouterr().err
