"""Tests of building revisions: each revision has its own environment, and mistakes are one clear line."""

from __future__ import annotations

import subprocess

import pytest

from tessera.ab.revisions import WORKING_TREE, RevisionBuilder
from tessera.ab.worker import PackageOrigin
from tessera.errors import TesseraError
from tests.ab.packages import make_repository, run_git, slow_down

PRINT_REPEATS = "import hashed_package, torch; print(hashed_package.REPEATS, hashed_package.__file__)"


@pytest.mark.timeout(300)
def test_each_revision_has_its_own_package_and_shares_the_other_packages(tmp_path):
    repository = make_repository(tmp_path / "repository")
    run_git(repository, "checkout", "-q", "-b", "slow")
    slow_down(repository, 3)
    (repository / "src" / "hashed_package" / "new.py").write_text("VALUE = 1")
    builder = RevisionBuilder(repository=repository, folder=tmp_path / "builds")
    base = builder.build("base", "main")
    head = builder.build("head", WORKING_TREE)
    outputs = {}
    for name, built in (("base", base), ("head", head)):
        done = subprocess.run([built.python, "-c", PRINT_REPEATS], capture_output=True, text=True, timeout=60, env={})
        assert done.returncode == 0, done.stderr
        outputs[name], path = done.stdout.split()
        assert path.startswith(str(tmp_path / "builds" / name))
        assert built.origin.modules == ("hashed_package",)
    assert outputs == {"base": "1", "head": "3"}
    assert head.commit.endswith(" with uncommitted changes")
    assert " " not in base.commit
    assert (tmp_path / "builds" / "head" / "source" / "src" / "hashed_package" / "new.py").exists()
    assert not (repository / "build").exists()


@pytest.mark.timeout(120)
def test_a_build_command_replaces_pip(tmp_path):
    repository = make_repository(tmp_path / "repository")
    command = 'cp -r src/hashed_package "$(python -c "import site; print(site.getsitepackages()[0])")"'
    builder = RevisionBuilder(repository=repository, folder=tmp_path / "builds", command=command)
    assert builder.build("base", "main").origin.modules == ("hashed_package",)


@pytest.mark.timeout(120)
def test_mistakes_are_errors_of_one_line(tmp_path):
    repository = make_repository(tmp_path / "repository")
    builder = RevisionBuilder(repository=repository, folder=tmp_path / "a")
    with pytest.raises(TesseraError, match="unknown Git revision: got 'nowhere'"):
        builder.build("base", "nowhere")
    with pytest.raises(TesseraError, match="has no such folder: got 'nothing'"):
        RevisionBuilder(repository=repository, folder=tmp_path / "b", package="nothing").build("base", "main")
    with pytest.raises(TesseraError, match=r"it has no pyproject\.toml: got 'src'"):
        RevisionBuilder(repository=repository, folder=tmp_path / "c", package="src").build("base", "main")
    with pytest.raises(TesseraError, match="cannot build main: no compiler error here"):
        RevisionBuilder(
            repository=repository, folder=tmp_path / "d", command="echo no compiler error here; exit 3"
        ).build("base", "main")


def test_a_module_from_another_place_is_an_error(tmp_path):
    with pytest.raises(TesseraError, match="the package json is not imported from the build of its revision"):
        PackageOrigin(modules=("json",), folder=str(tmp_path)).check()
    PackageOrigin(modules=("not_imported",), folder=str(tmp_path)).check()
