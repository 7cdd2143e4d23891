"""The subject of the gate benchmark: a Git repository with a package of 40 operators, and its simulated pull requests.

A pull request with a slowdown computes some rows of one operator's input a second time. The number of rows is measured
beforehand, so that the operator is 5 % slower. A pull request without a slowdown changes a comment.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SLOWDOWN = 0.05
ROW_SHARES = (1 / 64, 1 / 32, 1 / 20, 1 / 12)  # shares of the rows that the calibration computes again
CALIBRATION_SECONDS = 2.0

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "subject"
version = "1"
[tool.setuptools]
packages = ["subject"]
"""

# Each operator is a function of a tensor of 512 rows; rows can be computed alone.
PACKAGE = '''\
"""Forty operators over the rows of a tensor."""

import torch

# note: none
EXTRA_ROWS = {}  # operator: number of rows that are computed a second time
ROWS, COLUMNS = 512, 256
torch.set_num_threads(1)
_source = torch.Generator().manual_seed(0)
X = torch.rand(ROWS, COLUMNS, generator=_source) + 0.5
W = torch.rand(COLUMNS, COLUMNS, generator=_source)
INDEX = torch.randint(0, COLUMNS, (ROWS, COLUMNS), generator=_source)
KERNEL = torch.rand(4, 1, 5, generator=_source)
IMAGE_KERNEL = torch.rand(4, 1, 3, 3, generator=_source)
F = torch.nn.functional

OPERATORS = {
    "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin,
    "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "gelu": F.gelu, "silu": F.silu,
    "softplus": F.softplus, "elu": F.elu, "log1p": torch.log1p, "expm1": torch.expm1, "atan": torch.atan,
    "pow": lambda x: torch.pow(x, 1.5), "add_mul": lambda x: (x + 1.0) * x,
    "clamp_div": lambda x: x.clamp(0.6, 1.2) / x,
    "softmax": lambda x: torch.softmax(x, 1), "log_softmax": lambda x: torch.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (COLUMNS,)), "normalize": lambda x: F.normalize(x, dim=1),
    "cumsum": lambda x: torch.cumsum(x, 1), "cumprod": lambda x: torch.cumprod(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 1), "var": lambda x: torch.var(x, 1),
    "norm": lambda x: torch.norm(x, dim=1),
    "sort": lambda x: torch.sort(x, 1), "topk": lambda x: torch.topk(x, 8, 1), "argsort": lambda x: torch.argsort(x, 1),
    "median": lambda x: torch.median(x, 1), "gather": lambda x: torch.gather(x, 1, INDEX[: len(x)]),
    "matmul": lambda x: x @ W, "linear": lambda x: F.linear(x, W), "flip": lambda x: torch.flip(x, (1,)).exp(),
    "conv1d": lambda x: F.conv1d(x.unsqueeze(1), KERNEL),
    "conv2d": lambda x: F.conv2d(x.view(-1, 1, 16, 16), IMAGE_KERNEL),
    "avg_pool": lambda x: F.avg_pool2d(x.view(-1, 1, 16, 16), 3, 1),
}


def build(name, rows=None):
    """Return a function without arguments that computes one operator."""
    function, rows = OPERATORS[name], EXTRA_ROWS.get(name, 0) if rows is None else rows
    if not rows:
        return lambda: function(X)
    part = X[:rows]

    def compute_some_rows_twice():
        function(part)
        return function(X)

    return compute_some_rows_twice
'''
GATE_FILE = """\
import subject
import tessera

@tessera.benchmark(operator=list(subject.OPERATORS)[:{count}])
def compute(operator):
    return subject.build(operator)
"""
PYTEST_FILE = """\
import pytest
import subject

@pytest.mark.parametrize("operator", list(subject.OPERATORS)[:{count}])
def test_compute(benchmark, operator):
    benchmark(subject.build(operator))
"""


def load_package() -> dict[str, Any]:
    """Execute the package's code in this process, for the calibration."""
    names: dict[str, Any] = {}
    exec(compile(PACKAGE, "subject.py", "exec"), names)
    return names


def calibrate(operators: int, log: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Return, for each operator that can be slowed by 5 %, the number of extra rows and the measured slowdown."""
    from tessera.measure.interleave import sample_interleaved

    package = load_package()
    build, rows = package["build"], package["ROWS"]
    planted = {}
    for name in list(package["OPERATORS"])[:operators]:
        counts = sorted({max(1, round(rows * share)) for share in ROW_SHARES})
        functions = {str(count): build(name, count) for count in (0, *counts)}
        times = sample_interleaved(functions, budget=CALIBRATION_SECONDS, target=0.0005)
        slowdowns = [times.ratio(str(count), "0").value - 1 for count in counts]
        line = np.polynomial.Polynomial.fit(counts, slowdowns, 1).convert().coef
        chosen = max(1, round((SLOWDOWN - line[0]) / line[1])) if line[1] > 0 else 1
        check = sample_interleaved(
            {"0": build(name, 0), "1": build(name, chosen)}, budget=CALIBRATION_SECONDS, target=0.0005
        )
        slowdown = check.ratio("1", "0").value - 1
        usable = 0.9 * SLOWDOWN <= slowdown <= 1.2 * SLOWDOWN
        log(f"{name}: {chosen} rows, {slowdown:+.2%}" + ("" if usable else " (not used)"))
        if usable:
            planted[name] = {"rows": chosen, "slowdown": slowdown}
    return planted


def make_repository(folder: Path, operators: int) -> Path:
    """Create the repository with the branch `main`."""
    (folder / "subject").mkdir(parents=True)
    (folder / "speed").mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "subject" / "__init__.py").write_text(PACKAGE)
    (folder / "speed" / "gate_file.py").write_text(GATE_FILE.format(count=operators))
    (folder / "speed" / "test_speed.py").write_text(PYTEST_FILE.format(count=operators))
    _run_git(folder, "init", "-q", "-b", "main")
    _run_git(folder, "add", "-A")
    _run_git(folder, "commit", "-q", "-m", "package")
    return folder


def make_pull_request(repository: Path, number: int, planted: Mapping[str, int]) -> str:
    """Create the branch of a pull request, and return its name; `planted` are the extra rows by operator."""
    branch = f"pull-{number}"
    _run_git(repository, "checkout", "-q", "-B", branch, "main")
    text = PACKAGE.replace("# note: none", f"# note {number}").replace(
        "EXTRA_ROWS = {}", f"EXTRA_ROWS = {dict(planted)!r}"
    )
    (repository / "subject" / "__init__.py").write_text(text)
    _run_git(repository, "commit", "-q", "-a", "-m", branch)
    _run_git(repository, "checkout", "-q", "main")
    return branch


def _run_git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)
