"""Tests of the structure of the package: imports point to lower layers, without cycles; class names are unique."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "tessera"

# The layers, lowest first. A package may import from lower layers. Imports within a layer must be listed in
# ALLOWED_SAME_LAYER_IMPORTS.
LAYERS = [
    {"errors", "files", "geometry", "axes", "tabular", "affinity", "validation"},
    {"measure", "machine", "device"},
    {"results", "models", "launch", "transport"},
    {"report"},
    {"ab", "operators", "spatial", "coregrid", "phased", "inference", "functions"},
    {"suites"},
    {"api"},
    {"cli", "pytest_plugin"},
]
ALLOWED_SAME_LAYER_IMPORTS = {("transport", "launch"), ("device", "measure"), ("device", "machine")}
LAYER_NUMBERS = {package: level for level, layer in enumerate(LAYERS) for package in layer}


def find_imports(path: Path, root: Path = ROOT) -> set[str]:
    """Return every module that a file imports, also inside functions and as a string `tessera.a.b:c`."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.add(node.module or "")
            if node.module == "tessera":
                modules |= {f"tessera.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, name = node.value.partition(":")
            if colon and module.startswith("tessera.") and name.isidentifier():
                modules.add(module)
    return modules


def get_package(path: Path, root: Path = ROOT) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def find_violations(root: Path = ROOT) -> list[str]:
    """Return every import from a higher layer, or from the same layer unless ALLOWED_SAME_LAYER_IMPORTS allows it."""
    wrong = []
    for path in sorted(root.rglob("*.py")):
        importer = get_package(path, root)
        if importer.startswith("__"):
            continue
        if importer not in LAYER_NUMBERS:
            wrong.append(f"{importer} is in no layer")
            continue
        for module in find_imports(path, root):
            parts = module.split(".")
            if importer == "geometry" and parts[0] == "torch":
                wrong.append(f"{path.name}: geometry imports {module}")
            if parts[0] != "tessera" or len(parts) < 2 or parts[1] not in LAYER_NUMBERS:
                continue
            imported = parts[1]
            if imported == importer or (imported == "errors" and importer != "geometry"):
                continue
            if importer == "geometry" or LAYER_NUMBERS[imported] > LAYER_NUMBERS[importer]:
                wrong.append(f"{path.relative_to(root)}: {importer} imports {imported}, upward")
            elif (
                LAYER_NUMBERS[imported] == LAYER_NUMBERS[importer]
                and (importer, imported) not in ALLOWED_SAME_LAYER_IMPORTS
            ):
                wrong.append(f"{path.relative_to(root)}: {importer} imports {imported}, sideways")
    return wrong


def test_imports_point_down_and_features_do_not_import_each_other():
    assert find_violations() == []


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
def test_a_planted_violation_is_detected(tmp_path, file, line):
    planted = tmp_path / file
    planted.parent.mkdir()
    planted.write_text(line)
    assert len(find_violations(tmp_path)) == 1


def test_importing_the_command_line_imports_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys, tessera.cli.main as m; m.main(['--help']);"
        "bad = {'torch', 'scipy', 'numpy', 'plotly', 'mpi4py', 'psutil'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


def test_modules_are_named_for_what_they_hold():
    for path in [*ROOT.rglob("*.py"), *(ROOT.parents[1] / "tests").rglob("*.py")]:
        assert path.stem not in ("utils", "common", "helpers"), path
        assert "helpers" not in path.parent.name, path


def get_node(module: str, root: Path = ROOT) -> str:
    """Return the node of a module in the import graph of its package: its sub-package, or the module itself.

    >>> get_node("tessera.phased.store.file"), get_node("tessera.phased.cases"), get_node("tessera.phased")
    ('phased.store', 'phased.cases', 'phased')
    """
    return ".".join(module.split(".")[1:3])


def build_import_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the import graph of the parts of each package: part -> imported parts of the same package."""
    graph: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        here = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(here[:-1] if here[-1] == "__init__" else here)
        for target in find_imports(path, root):
            if target.split(".")[:2] == module.split(".")[:2] and get_node(target) != get_node(module):
                graph.setdefault(get_node(module), set()).add(get_node(target))
    return graph


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the cycles of a graph: groups of nodes that reach one another."""

    def find_reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in graph.get(waiting.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return seen

    reached = {node: find_reachable(node) for node in graph}
    cycles = {tuple(sorted(n for n in reached[node] if node in reached.get(n, ()))) for node in graph}
    return sorted(list(cycle) for cycle in cycles if len(cycle) > 1)


def test_parts_of_a_package_do_not_import_one_another_mutually():
    assert find_cycles(build_import_graph()) == []


def test_a_planted_cycle_is_detected(tmp_path):
    root = tmp_path / "tessera"
    for file, line in (
        ("phased/store/a.py", "from tessera.phased.model import x"),
        ("phased/model.py", "def f():\n    from tessera.phased.memory.b import y"),
        ("phased/memory/b.py", "run('tessera.phased.store.a:f')"),
        ("phased/cases.py", "import tessera.phased.model"),
    ):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(line)
    assert find_cycles(build_import_graph(root)) == [["phased.memory", "phased.model", "phased.store"]]


def find_class_names(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the modules that define each top-level class name."""
    names: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names.setdefault(node.name, []).append(str(path.relative_to(root)))
    return names


def test_class_names_are_unique():
    repeated = {name: paths for name, paths in find_class_names().items() if len(paths) > 1}
    assert repeated == {}


def find_cuda_uses(root: Path = ROOT) -> list[str]:
    """Return the files outside the package `device` that mention the functions of one kind of accelerator."""
    files = [path for path in sorted(root.rglob("*.py")) if get_package(path, root) != "device"]
    return [str(path.relative_to(root)) for path in files if "torch.cuda" in path.read_text()]


def test_only_the_device_package_uses_functions_of_one_kind_of_accelerator(tmp_path):
    assert find_cuda_uses() == []
    for package in ("device", "operators"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "x.py").write_text("torch.cuda.synchronize()")
    assert find_cuda_uses(tmp_path) == ["operators/x.py"]


TEXT_METHODS = ("startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "find", "index")


def find_readers_of_notes(root: Path = ROOT) -> list[str]:
    """Return every place that compares or parses notes, which are remarks for people.

    Printing and collecting notes is allowed. The migration of records of schema 1, which had no other fields, is too.
    """
    wrong = []
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text())
        sources = {"notes"}
        for node in ast.walk(tree):  # names that a loop takes from notes
            if isinstance(node, ast.For | ast.comprehension) and _mentions(node.iter, sources):
                sources |= {target.id for target in ast.walk(node.target) if isinstance(target, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                read = any(isinstance(op, ast.In | ast.NotIn | ast.Eq | ast.NotEq) for op in node.ops) and any(
                    _is_source(side, sources) for side in (node.left, *node.comparators)
                )
            else:
                method = node.func if isinstance(node, ast.Call) else None
                read = (
                    isinstance(method, ast.Attribute)
                    and method.attr in TEXT_METHODS
                    and _is_source(method.value, sources)
                )
            if read and path.relative_to(root).parts != ("results", "record.py"):
                wrong.append(f"{path.relative_to(root)}:{node.lineno}")
    return wrong


def _is_source(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "notes"
    return isinstance(node, ast.Name) and node.id in names


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(_is_source(part, names) for part in ast.walk(node))


def test_no_code_reads_notes():
    assert find_readers_of_notes() == []


@pytest.mark.parametrize(
    "line",
    [
        "good = 'slower' in record.notes",
        "for note in record.notes:\n    print(note.startswith('slower'))",
        "sides = [note.partition(':')[2] for note in record.notes]",
        "better = [note for note in record.notes if note == 'faster']",
    ],
)
def test_a_planted_reader_of_notes_is_detected(tmp_path, line):
    (tmp_path / "x.py").write_text(line)
    assert len(find_readers_of_notes(tmp_path)) == 1


def test_no_module_defines_a_context_variable():
    """Settings are explicit parameters; a context variable would be set as a side effect."""
    for path in ROOT.rglob("*.py"):
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(ast.parse(path.read_text()))}
        assert "ContextVar" not in names, path
