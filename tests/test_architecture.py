"""Arrows point down only: a walk over all imports of the package."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "tessera"

# from the bottom up; a package may import from its own layer only what is listed in SIDEWAYS
LAYERS = [
    {"errors", "files", "geometry"},
    {"measure", "machine"},
    {"results", "models", "launch", "transport"},
    {"report"},
    {"operators", "spatial", "coregrid", "phased", "inference"},
    {"suites"},
    {"cli"},
]
SIDEWAYS = {("transport", "launch")}
LEVEL = {package: level for level, layer in enumerate(LAYERS) for package in layer}


def imports(path: Path, root: Path = ROOT) -> set[str]:
    """Every module a file imports, at its top or inside its functions; strings `tessera.a.b:c` count as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            if node.module == "tessera":
                found |= {f"tessera.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, name = node.value.partition(":")
            if colon and module.startswith("tessera.") and name.isidentifier():
                found.add(module)
    return found


def package_of(path: Path, root: Path = ROOT) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def violations(root: Path = ROOT) -> list[str]:
    wrong = []
    for path in sorted(root.rglob("*.py")):
        here = package_of(path, root)
        if here.startswith("__"):
            continue
        if here not in LEVEL:
            wrong.append(f"{here} is in no layer")
            continue
        for module in imports(path, root):
            parts = module.split(".")
            if here == "geometry" and parts[0] == "torch":
                wrong.append(f"{path.name}: geometry imports {module}")
            if parts[0] != "tessera" or len(parts) < 2 or parts[1] not in LEVEL:
                continue
            there = parts[1]
            if there == here or (there == "errors" and here != "geometry"):
                continue
            if here == "geometry" or LEVEL[there] > LEVEL[here]:
                wrong.append(f"{path.relative_to(root)}: {here} imports {there}, upward")
            elif LEVEL[there] == LEVEL[here] and (here, there) not in SIDEWAYS:
                wrong.append(f"{path.relative_to(root)}: {here} imports {there}, sideways")
    return wrong


def test_no_arrow_points_up_and_no_feature_imports_a_feature():
    assert violations() == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("measure/x.py", "from tessera.launch import Workers"),
        ("operators/x.py", "def f():\n    import tessera.spatial.layers"),
        ("geometry/x.py", "import torch"),
        ("geometry/x.py", "from tessera.errors import TesseraError"),
        ("results/x.py", "from tessera import cli"),
        ("launch/x.py", "run('tessera.suites.worker:measure')"),
        ("surprise/x.py", "pass"),
    ],
)
def test_the_walk_finds_a_planted_violation(tmp_path, file, line):
    planted = tmp_path / file
    planted.parent.mkdir()
    planted.write_text(line)
    assert len(violations(tmp_path)) == 1


def test_importing_the_command_line_imports_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys, tessera.cli.main as m; m.main(['--help']);"
        "bad = {'torch', 'scipy', 'numpy', 'plotly', 'mpi4py', 'psutil'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


def test_files_stay_small_and_rooms_have_names():
    for path in [*ROOT.rglob("*.py"), *(ROOT.parents[1] / "tests").rglob("*.py")]:
        assert path.name not in ("utils.py", "common.py", "helpers.py"), path
        assert len(path.read_text().splitlines()) <= (300 if path.is_relative_to(ROOT) else 330), path
