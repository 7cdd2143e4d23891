"""Tests of `tessera show`: the table of a stored run, filters, formats, and one-line error messages."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.measure.samples import Samples
from tessera.results.record import Case, Record
from tessera.results.store import Store

Show = Callable[..., tuple[int, str, str]]


@pytest.fixture
def show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    path = tmp_path / "s.sqlite"
    with Store(path) as opened:
        run = opened.start_run("main", command="tessera suite quick")
        for name in ("add", "matmul"):
            case = Case(feature="ops", name=name, params={"size": "small"})
            opened.add(run, Record(case=case, launches=(Samples(values=(2e-5, 2e-5, 2e-5)),)))
        opened.add(run, Record(case=Case(feature="halo", name="ring"), status="timed_out", reason="after 9 s"))
        opened.finish_run(run)

    def call(*argv: str) -> tuple[int, str, str]:
        return main(["show", "--store", str(path), *argv]), *capsys.readouterr()

    return call


def test_the_latest_run_is_the_default(show: Show) -> None:
    code, out, err = show()
    assert (code, err) == (0, "")
    assert all(words in out for words in ("add", "matmul", "ring", "20.0 µs", "timed out"))
    code, whole, _ = show("--all")
    assert code == 0
    assert all(words in whole for words in ("ops add", "ops matmul", "halo ring", "launches"))
    assert show("main") == show("latest") == (code, out, err)


def test_filters_and_formats(show: Show) -> None:
    code, out, _ = show("--name", "mat*", "--json")
    assert code == 0
    assert [record["case"]["name"] for record in json.loads(out)["records"]] == ["matmul"]


def test_no_matching_case_is_an_error(show: Show) -> None:
    code, out, err = show("--feature", "conv")
    assert (code, out) == (2, "")
    assert "no records that match --feature and --name" in err
