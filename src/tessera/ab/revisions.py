"""Build a revision of a package: check out a Git revision, and install it into a virtual environment of its own.

The environment sees the packages of the current interpreter, so that only the package under test differs and nothing is
downloaded. With `share_packages=False` it starts empty, and pip installs the dependencies of each revision.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tessera.ab.worker import PackageOrigin
from tessera.errors import BenchmarkFailed, TesseraError

WORKING_TREE = ""  # the revision that stands for the files of the working tree
BUILD_TIME_LIMIT = 3600.0
OWN_PACKAGE = "tessera"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRevision:
    """A built revision: its interpreter, its short commit name, and the place of its modules."""

    python: str
    commit: str
    origin: PackageOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionBuilder:
    """The way to build revisions of a repository into sub-folders of `folder`.

    `package` is the folder of the package inside the repository. `command` replaces the installation with pip: a shell
    command that is run in the package's folder, with the environment's `python` and `pip` first in PATH.
    """

    repository: Path
    folder: Path
    package: str = "."
    command: str = ""
    share_packages: bool = True

    def find_root(self) -> Path:
        """Return the root of the repository."""
        done = _run_git(self.repository, "rev-parse", "--show-toplevel", check=False)
        if done.returncode:
            raise TesseraError("not a Git repository", got=str(self.repository), do="give --repository FOLDER")
        return Path(done.stdout.strip())

    def resolve(self, revision: str) -> str:
        """Return the full commit name of a revision."""
        resolved = _run_git(self.find_root(), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False)
        if resolved.returncode:
            raise TesseraError(
                "unknown Git revision",
                got=revision,
                do="fetch it first; a CI checkout often holds a single commit (fetch-depth: 0 gets all)",
            )
        return resolved.stdout.strip()

    def build(self, name: str, revision: str) -> BuiltRevision:
        """Check out a revision and install it; `name` is the name of its sub-folder."""
        commit = self.resolve(revision or "HEAD")
        source, environment = self.folder / name / "source", self.folder / name / "environment"
        self._check_out(source, commit)
        label = commit[:9]
        if revision == WORKING_TREE and self._copy_changes(source):
            label += " with uncommitted changes"
        package = source / self.package
        if not package.is_dir():
            raise TesseraError(f"{revision or 'the working tree'} has no such folder", got=self.package)
        python = self._make_environment(environment)
        before = set(_list_modules(environment))
        self._install(package, environment, python, revision or "the working tree")
        modules = tuple(sorted(set(_list_modules(environment)) - before))
        if OWN_PACKAGE in modules:
            raise TesseraError(
                "the gate cannot compare revisions of Tessera: the running version measures both sides",
                do="compare two interpreters with --base-python and --head-python",
            )
        origin = PackageOrigin(modules=modules, folder=str(environment))
        return BuiltRevision(python=python, commit=label, origin=origin)

    def _check_out(self, source: Path, commit: str) -> None:
        source.parent.mkdir(parents=True)
        _run_git(self.find_root(), "clone", "--quiet", "--shared", "--no-checkout", ".", str(source))
        _run_git(source, "checkout", "--quiet", "--detach", commit)
        if (source / ".gitmodules").exists():
            _run_git(source, "submodule", "update", "--quiet", "--init", "--recursive")

    def _copy_changes(self, source: Path) -> bool:
        """Copy changed, new and deleted files of the working tree, and return whether there are any."""
        top = self.find_root()
        changed = _run_git(top, "diff", "--name-only", "-z", "HEAD").stdout
        new = _run_git(top, "ls-files", "-z", "--others", "--exclude-standard").stdout
        names = [name for name in (changed + new).split("\0") if name]
        for name in names:
            if (top / name).is_dir():
                raise TesseraError(
                    "a submodule has uncommitted changes, which cannot be copied",
                    got=name,
                    do="commit them in the submodule and in the repository, and give --head",
                )
            if (top / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(top / name, source / name)
            else:
                (source / name).unlink(missing_ok=True)
        return bool(names)

    def _make_environment(self, environment: Path) -> str:
        """Create an empty environment, or one that sees the packages of the current interpreter, pip included."""
        shared = ["--without-pip"] if self.share_packages else []
        _run_command(
            [sys.executable, "-m", "venv", *shared, str(environment)], Path.cwd(), "cannot create an environment"
        )
        python = environment / "bin" / "python"
        if self.share_packages:
            own = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages())
            lines = [f"import site; site.addsitedir({folder!r})\n" for folder in dict.fromkeys(own)]
            (_get_site_packages(environment) / "shared-packages.pth").write_text("".join(lines))
            pip = python.with_name("pip")
            pip.write_text(f'#!/bin/sh\nexec "{python}" -m pip "$@"\n')
            pip.chmod(0o755)
        return str(python)

    def _install(self, package: Path, environment: Path, python: str, revision: str) -> None:
        what = f"cannot build {revision}"
        if self.command:
            path = f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
            _run_command(["sh", "-c", self.command], package, what, {"PATH": path, "VIRTUAL_ENV": str(environment)})
            return
        if not any((package / name).exists() for name in ("pyproject.toml", "setup.py", "setup.cfg")):
            raise TesseraError(
                f"{revision} cannot be installed with pip: it has no pyproject.toml",
                got=str(self.package),
                do="give --package FOLDER or --build COMMAND",
            )
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        if not self.share_packages:
            _run_command([*pip, str(package)], package, what)
            return
        try:  # with the build tools of this interpreter, so that nothing is downloaded
            _run_command([*pip, "--no-deps", "--no-build-isolation", str(package)], package, what)
        except BenchmarkFailed:  # they may be missing or too old
            _run_command([*pip, "--no-deps", str(package)], package, what)


def _get_site_packages(environment: Path) -> Path:
    (folder,) = environment.glob("lib/python3*/site-packages")
    return folder


def _list_modules(environment: Path) -> list[str]:
    """Return the top-level modules and packages that are installed in an environment itself."""
    folder = _get_site_packages(environment)
    packages = [path.name for path in folder.iterdir() if path.is_dir() and path.name.isidentifier()]
    modules = [path.name.partition(".")[0] for path in folder.iterdir() if path.suffix in (".py", ".so")]
    return [name for name in (*packages, *modules) if name != "__pycache__"]


def _run_git(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    if not folder.is_dir():
        raise TesseraError("the folder does not exist", got=str(folder))
    if shutil.which("git") is None:
        raise TesseraError("git is not installed", do="install git, or use --base-python and --head-python")
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if check and done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise TesseraError(f"git {words[0]} failed: {lines[-1]}", got=str(folder))
    return done


def _run_command(command: list[str], folder: Path, what: str, env: dict[str, str] | None = None) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=clean | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkFailed(f"{what}: no end within {BUILD_TIME_LIMIT:g} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines
        reasons = " | ".join(dict.fromkeys(telling[-4:])) or f"exit code {done.returncode}"
        raise BenchmarkFailed(f"{what}: {reasons}")
