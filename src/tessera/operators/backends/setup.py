"""Virtual environments (venvs) with pinned requirements, for frameworks that conflict with the other packages.

A venv cannot be moved, so it is created at its final path. A copy of the requirements is written into the venv last:
a venv without this copy, or with different requirements, is incomplete and is created again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tessera.errors import TesseraError
from tessera.operators.backends import BACKENDS, BackendEntry, get_backend_entry
from tessera.results.store import get_default_store_path

REQUIREMENTS_DIRECTORY = Path(__file__).parent / "data"
PINNED_FILE_NAME = "pinned.txt"  # file in a venv: a copy of the requirements that are installed in it
# first words of pip's progress lines
PIP_PROGRESS_PREFIXES = ("Collecting", "Downloading", "Installing", "Successfully")

ProgressCallback = Callable[[str], object]


def get_backends_directory() -> Path:
    """Return the directory of the venvs: `$TESSERA_BACKENDS`, or `backends` next to the default results store."""
    return Path(os.environ.get("TESSERA_BACKENDS") or get_default_store_path().parent / "backends").absolute()


def get_own_python(name: str) -> Path:
    """Return the Python interpreter of a backend's venv; raise an error with the setup command if incomplete."""
    python = _get_python_path(get_backends_directory() / name)
    if not _is_complete(name):
        raise TesseraError(
            f"{get_backend_entry(name).title} requires a separate Python interpreter",
            do=f"run `tessera ops --setup-backend {name}`",
        )
    return python


def setup_backend(name: str, tell: ProgressCallback = print) -> Path:
    """Create the venv of a backend unless complete; return its Python interpreter. `tell` receives progress lines."""
    entry = get_backend_entry(name)
    if not entry.own_python:
        isolated = [backend for backend, known in BACKENDS.items() if known.own_python]
        raise TesseraError(f"{entry.title} does not use a separate Python interpreter", got=name, allowed=isolated)
    home = get_backends_directory()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _lock_exclusively(home / f"{name}.lock", tell):
            if _is_complete(name):
                tell(f"{entry.title} is set up in {home / name}")
            else:
                _create_venv(name, entry, home / name, tell)
    except OSError as error:
        raise TesseraError(
            f"cannot create a virtual environment in this directory: {error.strerror}", got=str(home)
        ) from None
    return get_own_python(name)


def _is_complete(name: str) -> bool:
    """Return whether a backend's venv is complete and has the requirements of this release."""
    directory = get_backends_directory() / name
    try:
        same = (directory / PINNED_FILE_NAME).read_bytes() == _get_pins_path(name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return same and os.access(_get_python_path(directory), os.X_OK)


def _create_venv(name: str, entry: BackendEntry, directory: Path, tell: ProgressCallback) -> None:
    base = _find_base_python(entry)
    (directory / PINNED_FILE_NAME).unlink(missing_ok=True)
    tell(f"creating {directory} with Python {entry.own_python}")
    _run_setup_step([base, "-m", "venv", "--clear", str(directory)], "venv", name, tell)
    python = str(_get_python_path(directory))
    install = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", str(_get_pins_path(name))]
    # -I: packages of PYTHONPATH and of the user's site directory must not replace pinned packages
    _run_setup_step([python, "-I", *install], "pip", name, tell)
    tell(f"checking that {entry.package} can be imported")
    _run_setup_step([python, "-I", "-c", f"import {entry.package}"], "the first import", name, tell)
    part = directory / f"{PINNED_FILE_NAME}.part"
    shutil.copyfile(_get_pins_path(name), part)
    part.replace(directory / PINNED_FILE_NAME)
    tell(f"{entry.title} is set up in {directory}")


def _run_setup_step(command: Sequence[str], step: str, name: str, tell: ProgressCallback) -> None:
    """Run a command of the setup; if it fails, raise an error with the last line of its error output."""
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in filter(None, map(str.strip, process.stdout)):
            output.append(line)
            if line.startswith(PIP_PROGRESS_PREFIXES):
                tell(line)
    if process.returncode:
        errors = [line for line in output if line.startswith("ERROR:")] or output or ["no error message was printed"]
        raise TesseraError(f"{step} failed during the setup of {name}: {errors[-1].removeprefix('ERROR: ')}")


def _find_base_python(entry: BackendEntry) -> str:
    """Return an interpreter of the pinned Python version: the running interpreter, or an interpreter in PATH."""
    if entry.own_python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    python = shutil.which(f"python{entry.own_python}")
    if python is None:
        raise TesseraError(
            f"{entry.title} requires Python {entry.own_python}",
            got=f"{sys.version_info.major}.{sys.version_info.minor}",
            do=f"install python{entry.own_python} and add it to PATH",
        )
    return python


@contextmanager
def _lock_exclusively(path: Path, tell: ProgressCallback) -> Iterator[None]:
    """Hold the lock of a venv; wait while another process holds it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that is setting up the same backend")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _get_pins_path(name: str) -> Path:
    return REQUIREMENTS_DIRECTORY / f"{name}.txt"


def _get_python_path(directory: Path) -> Path:
    return directory / "bin" / "python"
