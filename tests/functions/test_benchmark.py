"""Tests of the `@tessera.benchmark` decorator, and of the cases that it creates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.functions.benchmark import FILES_VARIABLE, benchmark, get_benchmark, load_benchmarks
from tessera.functions.cases import cases, expand_cases

FILE = """
import tessera
from neighbour import SIZES

@tessera.benchmark(size=SIZES, kind=["list", "tuple"])
def sort(size, kind):
    data = {"list": list, "tuple": tuple}[kind](range(size, 0, -1))
    return lambda: sorted(data)

@tessera.benchmark(name="plain", version="7")
def add():
    return 1 + 1
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(FILES_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour.py").write_text("SIZES = [10, 20]\n")
    (tmp_path / "bench_file.py").write_text(FILE)
    return str(tmp_path / "bench_file.py")


def test_a_file_gives_every_combination_of_its_axes(file: str) -> None:
    assert [case.key for case in cases(file)] == [
        "function/sort[kind=list,size=10]",
        "function/sort[kind=tuple,size=10]",
        "function/sort[kind=list,size=20]",
        "function/sort[kind=tuple,size=20]",
        "function/plain",
    ]
    assert [case.params for case in cases(file, ["sort"], size=[3], kind=["list"])] == [{"size": 3, "kind": "list"}]
    assert os.environ[FILES_VARIABLE] == file
    assert get_benchmark("plain").version == "7"


def test_setup_is_not_timed_and_generators_clean_up() -> None:
    events: list[str] = []

    @benchmark(size=[1])
    def with_setup(size: int):
        events.append("set up")
        yield lambda: events.append("call")
        events.append("clean up")

    with with_setup.prepare({"size": 1}) as timed:
        timed()
        timed()
    assert events == ["set up", "call", "call", "clean up"]


def test_the_decorated_function_can_still_be_called() -> None:
    @benchmark(n=[2])
    def double(n: int) -> int:
        return 2 * n

    assert double(5) == 10
    with double.prepare({"n": 3}) as timed:
        assert timed() == 6
    assert [case.key for case in expand_cases(double)] == ["function/double[n=2]"]


def test_invalid_axes_and_parameters_are_errors() -> None:
    with pytest.raises(TesseraError, match="axis n has no values"):
        benchmark(n=[])(lambda n: n)
    with pytest.raises(TesseraError, match="requires a list of values"):
        benchmark(n="abc")(lambda n: n)
    with pytest.raises(TesseraError, match="has a value of an unsupported type"):
        benchmark(n=[object()])(lambda n: n)
    with pytest.raises(TesseraError, match=r"has no parameter for this axis: got 'm'; allowed: n"):
        benchmark(m=[1], n=[1])(lambda n: n)
    with pytest.raises(TesseraError, match="parameter n has no axis and no default"):
        benchmark(lambda n: n)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no benchmarks"),
        ("import no_such_module_here", "the benchmark file failed: ModuleNotFoundError"),
        ("raise SystemExit(3)", "the benchmark file failed: SystemExit"),
        ("def f(:", "the benchmark file failed: SyntaxError"),
    ],
)
def test_the_error_for_a_file_that_does_not_load_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(TesseraError, match=message):
        load_benchmarks(str(path))


def run_command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tessera", "run", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=110, check=False)


def test_the_command_runs_a_file_and_stores_its_records(file: str, tmp_path: Path) -> None:
    done = run_command(file, "sort", "--sweep", "size=7", "--quick", "--store", "s.sqlite", "--csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("function/sort") == 2
    listed = run_command(file, "--list", cwd=tmp_path)
    assert "function/plain" in listed.stdout
    for arguments, message in (
        ((file, "no_such"), "the file has no benchmark of this name"),
        ((file, "--sweep", "size=x"), "allowed: values of type int"),
        ((file, "--sweep", "width=1"), "--sweep"),
        (("absent.py",), "the benchmark file does not exist"),
        ((), "no benchmark file is given"),
    ):
        failed = run_command(*arguments, cwd=tmp_path)
        assert (failed.returncode, failed.stderr.count("\n")) == (2, 1), failed.stderr
        assert message in failed.stderr


def test_a_failing_benchmark_is_a_failed_record(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import tessera\n@tessera.benchmark\ndef bad():\n    raise ValueError('planted')\n"
    )
    done = run_command("bad.py", "--quick", "--store", "s.sqlite", cwd=tmp_path)
    assert done.returncode == 4
    assert "planted" in done.stdout + done.stderr
