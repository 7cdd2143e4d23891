"""Other interpreters: a backend's own venv, made whole or not at all; and any Python that a user names."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends import BACKENDS, Entry, setup
from tessera.operators.backends.setup import backends_home, own_python, setup_backend
from tessera.operators.cases import cases
from tessera.suites.crews import Crews
from tessera.suites.features import feature

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A backend with an interpreter of its own whose only package is a module of one line; gives the pinned file."""
    made = Entry(title="Tiny", prefix="TY", implementation="", expressions="", package="tiny", own_python=HERE)
    monkeypatch.setitem(BACKENDS, "tiny", made)
    monkeypatch.setattr(setup, "DATA", tmp_path / "data")
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    pins = tmp_path / "data" / "tiny.txt"
    pins.write_text(f"{wheel(tmp_path, 'answer = 42')}\n")
    return pins


def wheel(folder: Path, code: str) -> Path:
    """A package of one module, as pip installs it, without a network."""
    path, info = folder / "tiny-1.0-py3-none-any.whl", "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", code)
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def asked(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def test_they_are_kept_beside_the_store_or_where_one_says(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESSERA_BACKENDS", raising=False)
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    assert backends_home() == tmp_path / ".tessera" / "backends"
    monkeypatch.setenv("TESSERA_STORE", "elsewhere/results.sqlite")
    assert backends_home() == tmp_path / "elsewhere" / "backends"
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path / "here"))
    assert backends_home() == tmp_path / "here"


@pytest.mark.timeout(100)
def test_two_who_set_up_at_once_make_one_venv_and_a_later_one_finds_it(tiny):
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: setup_backend("tiny", said.append), range(2))
    assert first == second == own_python("tiny") == setup_backend("tiny", said.append)
    assert asked(first, "import tiny; print(tiny.answer)") == "42"
    assert [line.startswith("making") for line in said].count(True) == 1
    assert [line.startswith("Successfully installed tiny-1.0") for line in said].count(True) == 1
    assert [line.startswith("waiting") for line in said].count(True) == 1
    assert [line.startswith("Tiny is set up") for line in said].count(True) == 3


@pytest.mark.timeout(100)
def test_what_is_not_whole_is_never_taken_for_good(tiny, tmp_path):
    good = tiny.read_text()
    with pytest.raises(
        TesseraError, match="Tiny needs an interpreter of its own: run `tessera ops --setup-backend tiny`"
    ):
        own_python("tiny")
    tiny.write_text(f"{tmp_path / 'none.whl'}\n")
    with pytest.raises(TesseraError, match=r"pip failed to set tiny up: .*none\.whl") as failed:
        setup_backend("tiny", [].append)
    assert "\n" not in str(failed.value)
    with pytest.raises(TesseraError, match="setup-backend tiny"):  # although there is a python in it
        own_python("tiny")
    tiny.write_text(good)
    python = setup_backend("tiny", [].append)
    assert asked(python, "import tiny; print(tiny.answer)") == "42"
    tiny.write_text(good + "# the pins of a later release\n")
    with pytest.raises(TesseraError, match="setup-backend tiny"):
        own_python("tiny")


@pytest.mark.slow
def test_what_cannot_be_imported_is_not_whole(tiny, tmp_path):
    tiny.write_text(f"{wheel(tmp_path, 'import missing_library')}\n")
    with pytest.raises(
        TesseraError, match=r"its first import failed to set tiny up: ModuleNotFoundError: .*missing_lib"
    ):
        setup_backend("tiny", [].append)
    with pytest.raises(TesseraError, match="setup-backend tiny"):
        own_python("tiny")


def test_a_python_that_is_not_there_is_named(tiny, monkeypatch):
    old = Entry(title="Old", prefix="", implementation="", expressions="", package="tiny", own_python="2.1")
    monkeypatch.setitem(BACKENDS, "tiny", old)
    with pytest.raises(TesseraError, match=r"Old needs Python 2\.1: got '3\.\d+'; put a python2\.1 into PATH"):
        setup_backend("tiny", [].append)


def test_a_backend_that_needs_none_and_a_home_that_cannot_be_are_refused(tiny, monkeypatch, tmp_path):
    with pytest.raises(
        TesseraError, match=r"PyTorch, eager runs in any interpreter that has it: got 'torch'; allowed: .*mxnet"
    ):
        setup_backend("torch")
    (tmp_path / "file").touch()
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path / "file" / "home"))
    with pytest.raises(TesseraError, match="cannot make a venv here: Not a directory"):
        setup_backend("tiny")


def test_a_case_runs_in_the_interpreter_it_needs_unless_another_is_asked_for(tiny, monkeypatch):
    here, there = cases(["add"], backend=["torch", "mxnet"], size=["small"], passes=["forward"])
    assert backends.interpreter(here) == ""
    with pytest.raises(TesseraError, match="setup-backend mxnet"):
        backends.interpreter(there)
    with pytest.raises(TesseraError, match="setup-backend mxnet"):
        backends.check_usable("mxnet")
    venv = backends_home() / "mxnet"
    (venv / "bin").mkdir(parents=True)
    os.symlink(sys.executable, venv / "bin" / "python")
    (tiny.parent / "mxnet.txt").write_text("pinned")
    (venv / "pinned.txt").write_text("pinned")
    assert backends.interpreter(there) == str(venv / "bin" / "python")
    backends.check_usable("mxnet")
    with pytest.raises(TesseraError, match="MXNet runs in an interpreter of its own: launch it in processes"):
        backends.backend("mxnet")
    with Crews(LaunchConfig(spawn="inline")) as crews:
        assert crews.of(here) is crews.own
        assert crews.of(there).config.python == str(venv / "bin" / "python")
    with Crews(LaunchConfig(spawn="inline", python="/another/python")) as crews:
        assert crews.of(here) is crews.of(there) is crews.own


@pytest.mark.timeout(100)
def test_a_record_from_another_interpreter_tells_that_ones_versions(tmp_path):
    """A venv that has no Tessera, all libraries of this one, and another version of torch by its metadata."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True, timeout=60)
    (packages,) = (tmp_path / "other").glob("lib/python3*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "torch-0.0.7.dist-info").mkdir()
    (packages / "torch-0.0.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.7\n")
    other = tmp_path / "other" / "bin" / "python"
    assert asked(other, "import importlib.util as u; print(u.find_spec('tessera'))") == "None"
    (case,) = cases(["add"], size=["small"], passes=["both"])
    doors = feature("ops")
    seen = []
    for python in (sys.executable, str(other)):
        with Crews(LaunchConfig(python=python)) as crews:
            (record,) = crews.of(case).run(
                "tessera.suites.worker:measure", doors.run, doors.preload, case, Sampling(warmup=0, iterations=3)
            )
        assert record.status == "ok"
        assert record.case == case
        seen.append(record.environment)
    assert seen[1]["libraries"] == seen[0]["libraries"] | {"torch": "0.0.7"}
    assert seen[0]["libraries"]["torch"] != "0.0.7"
    assert seen[0]["fingerprint"] == seen[1]["fingerprint"]  # versions are what one compares
