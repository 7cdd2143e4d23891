"""A Git repository with a small package, for tests of revisions and of the gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "hashed-package"
version = "1"
[tool.setuptools.packages.find]
where = ["src"]
"""
PACKAGE = """\
import hashlib

REPEATS = 1

def digest(data):
    for _ in range(REPEATS):
        value = hashlib.blake2b(data).digest()
    return value

def join(data):
    return data + data
"""
BENCHMARKS = """\
import hashed_package, tessera

@tessera.benchmark(size=[100_000])
def digest(size):
    data = bytes(size)
    return lambda: hashed_package.digest(data)

@tessera.benchmark
def join():
    data = bytes(200_000)
    yield lambda: hashed_package.join(data)
"""


def run_git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, timeout=60)


def make_repository(folder: Path) -> Path:
    """Create the repository with one commit, and return its folder."""
    (folder / "src" / "hashed_package").mkdir(parents=True)
    (folder / "benchmarks").mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "src" / "hashed_package" / "__init__.py").write_text(PACKAGE)
    (folder / "benchmarks" / "speed.py").write_text(BENCHMARKS)
    run_git(folder, "init", "-q", "-b", "main")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "-m", "one")
    return folder


def slow_down(repository: Path, repeats: int = 2) -> None:
    """Make `digest` of the working tree `repeats` times as slow."""
    path = repository / "src" / "hashed_package" / "__init__.py"
    path.write_text(path.read_text().replace("REPEATS = 1", f"REPEATS = {repeats}"))
