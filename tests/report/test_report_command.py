from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.report.runs import RunView
from tessera.results.export import to_json_text
from tessera.results.store import Store
from tests.report.synthetic import plausible


def stored(path: Path, *views: RunView) -> str:
    with Store(path) as store:
        for view in views:
            run = store.start_run(view.name, command=view.command)
            store.add_all(run, view.records)
            store.finish_run(run)
    return str(path)


def test_two_runs_become_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = stored(tmp_path / "s.sqlite", plausible("before", launches=3), plausible("after", launches=3))
    target = tmp_path / "out.html"
    assert main(["report", "before", "latest", "--store", store, "-o", str(target), "--threshold", "5%"]) == 0
    assert capsys.readouterr().out == f"report: {target}\n"
    text = target.read_text()
    assert "after against before" in text
    assert "threshold of 5.0%" in text


def test_the_latest_run_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(tmp_path / "s.sqlite", plausible("older"), plausible("newer"))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--store", store]) == 0
    assert "<h1>newer</h1>" in (tmp_path / "report.html").read_text()
    assert main(["report", "--list", "--store", store]) == 0
    assert "older" in capsys.readouterr().out


def test_exported_runs_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    with Store(stored(tmp_path / "s.sqlite", plausible("nightly", launches=3))) as store:
        run = store.run("nightly")
        text = to_json_text(run, store.records(run))
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
        (["nightly", "latest"], "the same run twice"),
        (["nightly", "--threshold", "abc"], "not a fraction"),
        (["nightly", "-o", "missing/report.html"], "cannot write the report"),
        (["nightly", "--store", "missing.sqlite"], "there is no store here"),
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
    monkeypatch.setenv("TESSERA_STORE", stored(tmp_path / "s.sqlite", plausible("nightly")))
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_a_run_without_records_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = stored(tmp_path / "s.sqlite", RunView(name="empty", created="", command="", records=[]))
    assert main(["report", "--store", store, "-o", str(tmp_path / "x.html")]) == 2
    assert "no records to show" in capsys.readouterr().err
