"""Tests of the pytest plugin, in pytest processes of their own: `bench`, stored runs, comparison and bad input."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tessera.results.store import Store

TESTS = """\
import hashlib, os
import pytest

SIZE = 400_000 if os.environ.get("SLOW") else 100_000

def test_digest(bench):
    result = bench(hashlib.blake2b, bytes(SIZE))
    assert result.name == "blake2b"
    if bench.enabled:
        assert 0 < bench.stats.min <= bench.stats["median"] <= bench.stats.stats.max

@pytest.mark.bench(group="sorting", budget="0.1s")
@pytest.mark.parametrize("size", [10, 1000])
def test_sort(bench, size):
    bench.extra_info["size"] = size
    assert bench(sorted, range(size, 0, -1))[0] == 1

def test_pedantic(bench):
    made, removed = [], []

    def setup():
        made.append([3, 1, 2])
        return (made[-1],), {"reverse": True}

    def sort(values, reverse):
        assert values == [3, 1, 2]
        values.sort(reverse=reverse)
        return values

    def teardown(values, reverse):
        removed.append(values)

    assert bench.pedantic(sort, setup=setup, teardown=teardown, rounds=7) == [3, 2, 1]
    assert len(made) == len(removed) == (7 if bench.enabled else 1)

def test_decorator(bench):
    @bench
    def value():
        return 5

    assert value == 5

def test_twice(bench):
    bench(int)
    with pytest.raises(Exception, match="used twice"):
        bench(int)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_speed.py").write_text(TESTS)
    return tmp_path


def run_pytest(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    plugins = ("-p", "no:tessera", "-p", "tessera.pytest_plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *words],
        cwd=folder,
        env=os.environ | {"TESSERA_STORE": str(folder / "runs.sqlite")} | env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_without_the_option_each_function_is_called_once_and_nothing_is_stored(folder):
    done = run_pytest(folder)
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
    assert not (folder / "runs.sqlite").exists()


@pytest.mark.timeout(200)
def test_a_slower_function_fails_the_comparison(folder):
    quick = ("--tessera-budget", "0.2s", "--tessera-launches", "3")
    done = run_pytest(folder, "--tessera", "--tessera-run-name", "before", *quick)
    assert done.returncode == 0, done.stdout
    assert "stored as run before" in done.stdout
    with Store(folder / "runs.sqlite") as store:
        records = {record.case.name: record for record in store.read_records(store.get_run("before"))}
    assert len(records) == 6
    assert len(records["test_speed.py::test_digest"].launches) == 3
    assert records["test_speed.py::test_sort[10]"].case.params == {"group": "sorting"}
    assert len(records["test_speed.py::test_pedantic"].launches[0].values) == 7
    words = ("--tessera-compare", "latest", "--tessera-threshold", "50%", "-k", "digest", *quick)
    slower = run_pytest(folder, *words, SLOW="1")
    assert slower.returncode == 1, slower.stdout
    assert "slower" in slower.stdout
    assert "1 passed" in slower.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tessera", "--tessera-launches", "0"), "--tessera-launches: got 0; allowed: 1 or more"),
        (("--tessera", "--tessera-budget", "soon"), "not a duration: got 'soon'"),
        (("--tessera-compare", "nothing"), "the store does not exist"),
    ],
)
def test_bad_input_is_one_line(folder, words, message):
    done = run_pytest(folder, *words)
    assert done.returncode == 4
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_comparison_without_benchmarks_fails(folder):
    run_pytest(folder, "--tessera", "--tessera-run-name", "before")
    (folder / "test_other.py").write_text("def test_nothing(): pass\n")
    done = run_pytest(folder, "test_other.py", "--tessera-compare", "before")
    assert done.returncode == 1
    assert "no test used the fixture bench" in done.stdout


def test_the_plugin_is_published_through_an_entry_point():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tessera": "tessera.pytest_plugin"}
