"""Tests of odd input and odd streams: one line on standard error, exit code 2, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.cli.main import main
from tessera.results.export import to_json_text
from tessera.results.store import Store
from tests.cli.run_command import run_tessera
from tests.results.synthetic import make_measured_record

pytestmark = pytest.mark.timeout(100)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with one run, `one`, which is exported as one.json too, and change to its directory."""
    monkeypatch.chdir(tmp_path)
    with Store(tmp_path / "s.sqlite") as opened:
        run = opened.start_run("one", command="tessera ops", suite="ops")
        opened.add(run, make_measured_record("add", 1.0, np.random.default_rng(1)))
        run = opened.finish_run(run)
        (tmp_path / "one.json").write_text(to_json_text(run, opened.read_records(run)))
    return tmp_path / "s.sqlite"


def nest(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "word for a metric": lambda d: d["records"][0].update(metrics={"time": {"value": "x"}}),
    "metric without a value": lambda d: d["records"][0].update(metrics={"time": {}}),
    "word for metrics": lambda d: d["records"][0].update(metrics="x"),
    "deep params": lambda d: d["records"][0]["case"].update(params={"a": nest(200)}),
    "large integer": lambda d: d["records"][0]["case"].update(params={"a": 2**70}),
    "number for a name": lambda d: d["records"][0]["case"].update(name=5),
    "case without a name": lambda d: d["records"][0]["case"].pop("name"),
    "no case": lambda d: d["records"][0].pop("case"),
    "record is a list": lambda d: d.update(records=[[]]),
    "records is a number": lambda d: d.update(records=3),
    "samples of words": lambda d: d["records"][0]["launches"][0].update(values=["a"]),
    "samples without values": lambda d: d["records"][0]["launches"][0].pop("values"),
    "samples of booleans": lambda d: d["records"][0]["launches"][0].update(values=[True]),
    "ranks of numbers": lambda d: d["records"][0]["launches"][0].update(ranks=[1]),
    "unknown environment": lambda d: d["records"][0].update(environment="zz"),
    "environment is a list": lambda d: d["records"][0].update(environment=[]),
    "environments are numbers": lambda d: d.update(environments=dict.fromkeys(d["environments"], 1)),
    "schema is a word": lambda d: d.update(schema="two"),
    "schema is infinite": lambda d: d.update(schema=float("inf")),
    "record of a newer schema": lambda d: d["records"][0].update(schema=99),
    "run is a list": lambda d: d.update(run=[]),
    "run name is a number": lambda d: d["run"].update(name=1),
    "status": lambda d: d["records"][0].update(status="great"),
    "verdict is a number": lambda d: d["records"][0].update(verdict=1),
    "tag": lambda d: d["records"][0].update(details={"$float": []}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_invalid_exports_are_refused_by_every_reader(
    store: Path, edit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path("one.json").read_text())
    EDITS[edit](document)
    Path("bad.json").write_text(json.dumps(document).replace("Infinity", "1e999"))
    for words in (
        ["export", "--import", "bad.json", "--as", "bad"],
        ["compare", "one", "bad.json"],
        ["report", "bad.json", "-o", "page.html"],
    ):
        assert main([*words, "--store", str(store)]) == 2, words
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert len(err) < 1000
    with Store(store) as opened:
        assert [run.name for run in opened.list_runs()] == ["one"]
    assert not Path("page.html").exists()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "1" * 5000, "\xff", "", "nul", "[1e999]"])
def test_text_that_is_no_export_is_refused(store: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.json").write_text(text, encoding="latin-1")
    assert main(["export", "--import", "bad.json", "--store", str(store)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_pipes_and_devices_are_not_read(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.json")
    os.mkfifo("pipe.toml")
    for words in (["compare", "one", "pipe.json"], ["suite", "pipe.toml"], ["suite", "/dev/zero"]):
        assert main(words + (["--store", str(store)] if words[0] == "compare" else [])) == 2
    assert main(["conv", "--machine", "pipe.toml", "--list"]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_long_numbers_after_latest_are_unknown_runs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "latest~" + "9" * 5000, "--store", str(store)]) == 2
    assert "no such run" in capsys.readouterr().err


def test_control_characters_in_messages_are_escaped(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["ops", "--x\x1b[2J"],
        ["suite", "a\x1b]0;b\x07"],
        ["show", "\x1b[31m", "--store", "a\x1bb.sqlite"],
        ["x\u202e"],
        ["infer", "--model", "a\x9b2J"],
    ):
        assert main(words) == 2
        message = capsys.readouterr().err.rstrip("\n")
        assert message.isprintable(), repr(message)


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_end_in_a_traceback(store: Path, closing: str) -> None:
    line = f"{sys.executable} -m tessera list models {closing}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr
    line = f"{sys.executable} -m tessera show nothing --store {store} {closing}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr


def test_an_ascii_terminal_gets_escaped_text(store: Path) -> None:
    done = run_tessera("show", "one", "--store", str(store), env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_a_full_standard_output_is_one_line(store: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tessera", "show", "one", "--store", str(store)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr
