"""Tests of separate interpreters: the complete or failed setup of a backend's venv, and a Python that a user names."""

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
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends import BACKENDS, BackendEntry, setup
from tessera.operators.backends.setup import get_backends_directory, get_own_python, setup_backend
from tessera.operators.cases import cases
from tessera.suites.features import get_feature
from tessera.suites.worker_pools import WorkerPools

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Register a backend with its own interpreter and a package of one line; return its file of pinned requirements."""
    made = BackendEntry(title="Tiny", prefix="TY", implementation="", expressions="", package="tiny", own_python=HERE)
    monkeypatch.setitem(BACKENDS, "tiny", made)
    monkeypatch.setattr(setup, "REQUIREMENTS_DIRECTORY", tmp_path / "data")
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    pins = tmp_path / "data" / "tiny.txt"
    pins.write_text(f"{write_wheel(tmp_path, 'answer = 42')}\n")
    return pins


def write_wheel(folder: Path, code: str) -> Path:
    """Write a wheel with one module, which pip can install without a network, and return its path."""
    path, info = folder / "tiny-1.0-py3-none-any.whl", "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", code)
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def run_code(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def test_venvs_are_next_to_the_store_or_in_the_given_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESSERA_BACKENDS", raising=False)
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    assert get_backends_directory() == tmp_path / ".tessera" / "backends"
    monkeypatch.setenv("TESSERA_STORE", "elsewhere/results.sqlite")
    assert get_backends_directory() == tmp_path / "elsewhere" / "backends"
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path / "here"))
    assert get_backends_directory() == tmp_path / "here"


@pytest.mark.timeout(100)
def test_concurrent_setups_create_one_venv(tiny):
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: setup_backend("tiny", said.append), range(2))
    assert first == second == get_own_python("tiny") == setup_backend("tiny", said.append)
    assert run_code(first, "import tiny; print(tiny.answer)") == "42"
    assert [line.startswith("creating") for line in said].count(True) == 1
    assert [line.startswith("Successfully installed tiny-1.0") for line in said].count(True) == 1
    assert [line.startswith("waiting") for line in said].count(True) == 1
    assert [line.startswith("Tiny is set up") for line in said].count(True) == 3


@pytest.mark.timeout(100)
def test_incomplete_venv_is_not_used(tiny, tmp_path):
    good = tiny.read_text()
    with pytest.raises(
        TesseraError, match="Tiny requires a separate Python interpreter: run `tessera ops --setup-backend tiny`"
    ):
        get_own_python("tiny")
    tiny.write_text(f"{tmp_path / 'none.whl'}\n")
    with pytest.raises(TesseraError, match=r"pip failed during the setup of tiny: .*none\.whl") as failed:
        setup_backend("tiny", [].append)
    assert "\n" not in str(failed.value)
    with pytest.raises(TesseraError, match="setup-backend tiny"):  # although the incomplete venv contains a Python
        get_own_python("tiny")
    tiny.write_text(good)
    python = setup_backend("tiny", [].append)
    assert run_code(python, "import tiny; print(tiny.answer)") == "42"
    tiny.write_text(good + "# the pins of a later release\n")
    with pytest.raises(TesseraError, match="setup-backend tiny"):
        get_own_python("tiny")


@pytest.mark.slow
def test_venv_whose_package_cannot_be_imported_is_incomplete(tiny, tmp_path):
    tiny.write_text(f"{write_wheel(tmp_path, 'import missing_library')}\n")
    with pytest.raises(
        TesseraError, match=r"the first import failed during the setup of tiny: ModuleNotFoundError: .*missing_lib"
    ):
        setup_backend("tiny", [].append)
    with pytest.raises(TesseraError, match="setup-backend tiny"):
        get_own_python("tiny")


def test_missing_python_version_is_named(tiny, monkeypatch):
    old = BackendEntry(title="Old", prefix="", implementation="", expressions="", package="tiny", own_python="2.1")
    monkeypatch.setitem(BACKENDS, "tiny", old)
    with pytest.raises(
        TesseraError, match=r"Old requires Python 2\.1: got '3\.\d+'; install python2\.1 and add it to PATH"
    ):
        setup_backend("tiny", [].append)


def test_setup_of_other_backends_or_in_an_invalid_directory_is_an_error(tiny, monkeypatch, tmp_path):
    with pytest.raises(
        TesseraError, match=r"PyTorch, eager does not use a separate Python interpreter: got 'torch'; allowed: .*mxnet"
    ):
        setup_backend("torch")
    (tmp_path / "file").touch()
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path / "file" / "home"))
    with pytest.raises(TesseraError, match="cannot create a virtual environment in this directory: Not a directory"):
        setup_backend("tiny")


def test_case_runs_in_its_backends_interpreter_unless_another_is_given(tiny, monkeypatch):
    here, there = cases(["add"], backend=["torch", "mxnet"], size=["small"], passes=["forward"])
    assert backends.find_case_interpreter(here) == ""
    with pytest.raises(TesseraError, match="setup-backend mxnet"):
        backends.find_case_interpreter(there)
    with pytest.raises(TesseraError, match="setup-backend mxnet"):
        backends.check_usable("mxnet")
    venv = get_backends_directory() / "mxnet"
    (venv / "bin").mkdir(parents=True)
    os.symlink(sys.executable, venv / "bin" / "python")
    (tiny.parent / "mxnet.txt").write_text("pinned")
    (venv / "pinned.txt").write_text("pinned")
    assert backends.find_case_interpreter(there) == str(venv / "bin" / "python")
    backends.check_usable("mxnet")
    with pytest.raises(TesseraError, match="MXNet requires a separate Python interpreter: start workers as processes"):
        backends.load_backend("mxnet")
    with WorkerPools(LaunchConfig(spawn="inline")) as crews:
        assert crews.get_workers(here) is crews.default
        assert crews.get_workers(there).config.python == str(venv / "bin" / "python")
    with WorkerPools(LaunchConfig(spawn="inline", python="/another/python")) as crews:
        assert crews.get_workers(here) is crews.get_workers(there) is crews.default


@pytest.mark.timeout(100)
def test_record_has_the_library_versions_of_its_interpreter(tmp_path):
    """Measure in a venv without Tessera, with the libraries of this interpreter and the metadata of another torch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True, timeout=60)
    (packages,) = (tmp_path / "other").glob("lib/python3*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "torch-0.0.7.dist-info").mkdir()
    (packages / "torch-0.0.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.7\n")
    other = tmp_path / "other" / "bin" / "python"
    assert run_code(other, "import importlib.util as u; print(u.find_spec('tessera'))") == "None"
    (case,) = cases(["add"], size=["small"], passes=["both"])
    doors = get_feature("ops")
    seen = []
    for python in (sys.executable, str(other)):
        with WorkerPools(LaunchConfig(python=python)) as crews:
            (record,) = crews.get_workers(case).run(
                "tessera.suites.worker:measure_case", doors, case, Sampling(warmup=0, iterations=3), RunContext()
            )
        assert record.status == "ok"
        assert record.case == case
        seen.append(record.environment)
    assert seen[1]["libraries"] == seen[0]["libraries"] | {"torch": "0.0.7"}
    assert seen[0]["libraries"]["torch"] != "0.0.7"
    assert seen[0]["fingerprint"] == seen[1]["fingerprint"]  # without library versions
