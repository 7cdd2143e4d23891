"""Interpreters of their own, for frameworks that cannot live beside the others: venvs made from pinned files.

A venv does not like to be moved, so it is made where it stays, and a copy of the pinned file is put into it last:
where that copy is missing, or is of another release's pins, there is nothing that anybody would take for good.
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
from tessera.operators.backends import BACKENDS, Entry, entry
from tessera.results.store import default_store_path

DATA = Path(__file__).parent / "data"
PINNED = "pinned.txt"  # in a venv: what it was made from
NEWS = ("Collecting", "Downloading", "Installing", "Successfully")  # the lines of pip that tell how far it is

Tell = Callable[[str], object]


def backends_home() -> Path:
    """Where these venvs are: `$TESSERA_BACKENDS`, or `backends` beside the default store."""
    return Path(os.environ.get("TESSERA_BACKENDS") or default_store_path().parent / "backends").absolute()


def own_python(name: str) -> Path:
    """The Python of a backend's own venv; one that was not set up is refused with the command that does it."""
    python = _python_in(backends_home() / name)
    if not _whole(name):
        raise TesseraError(
            f"{entry(name).title} needs an interpreter of its own", do=f"run `tessera ops --setup-backend {name}`"
        )
    return python


def setup_backend(name: str, tell: Tell = print) -> Path:
    """Make the venv of a backend, or find it made, and give its Python; `tell` gets lines of progress."""
    found = entry(name)
    if not found.own_python:
        having = [other for other, known in BACKENDS.items() if known.own_python]
        raise TesseraError(f"{found.title} runs in any interpreter that has it", got=name, allowed=having)
    home = backends_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home / f"{name}.lock", tell):
            if _whole(name):
                tell(f"{found.title} is set up in {home / name}")
            else:
                _make(name, found, home / name, tell)
    except OSError as error:
        raise TesseraError(f"cannot make a venv here: {error.strerror}", got=str(home)) from None
    return own_python(name)


def _whole(name: str) -> bool:
    """Whether the venv is there, complete, and made from the pins of this release."""
    place = backends_home() / name
    try:
        same = (place / PINNED).read_bytes() == _pins(name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return same and os.access(_python_in(place), os.X_OK)


def _make(name: str, found: Entry, place: Path, tell: Tell) -> None:
    base = _base_python(found)
    (place / PINNED).unlink(missing_ok=True)
    tell(f"making {place} with Python {found.own_python}")
    _run([base, "-m", "venv", "--clear", str(place)], "venv", name, tell)
    python = str(_python_in(place))
    install = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", str(_pins(name))]
    # isolated: neither PYTHONPATH nor the user's own packages may stand in for what is pinned
    _run([python, "-I", *install], "pip", name, tell)
    tell(f"trying whether {found.package} can be imported")
    _run([python, "-I", "-c", f"import {found.package}"], "its first import", name, tell)
    part = place / f"{PINNED}.part"
    shutil.copyfile(_pins(name), part)
    part.replace(place / PINNED)
    tell(f"{found.title} is set up in {place}")


def _run(command: Sequence[str], what: str, name: str, tell: Tell) -> None:
    """Run a step of the setup; when it fails, its last words are the error."""
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in filter(None, map(str.strip, process.stdout)):
            said.append(line)
            if line.startswith(NEWS):
                tell(line)
    if process.returncode:
        blamed = [line for line in said if line.startswith("ERROR:")] or said or ["no word of why"]
        raise TesseraError(f"{what} failed to set {name} up: {blamed[-1].removeprefix('ERROR: ')}")


def _base_python(found: Entry) -> str:
    """An interpreter of the version that the pins are for: this one, or one in PATH."""
    if found.own_python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    other = shutil.which(f"python{found.own_python}")
    if other is None:
        raise TesseraError(
            f"{found.title} needs Python {found.own_python}",
            got=f"{sys.version_info.major}.{sys.version_info.minor}",
            do=f"put a python{found.own_python} into PATH",
        )
    return other


@contextmanager
def _alone(path: Path, tell: Tell) -> Iterator[None]:
    """Nobody else works on the same venv; whoever comes second waits."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that sets the same backend up")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pins(name: str) -> Path:
    return DATA / f"{name}.txt"


def _python_in(place: Path) -> Path:
    return place / "bin" / "python"
