"""Detection of a planted slowdown: 5 % in one torch operator, `tessera ab` on it and on 50 unchanged operators.

The patch is a `sitecustomize` module of the second interpreter: when torch is imported there, `torch.matmul`
first multiplies some extra rows of the same buffers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tessera.ab.runner import ABRunner
from tessera.launch import LaunchConfig
from tessera.operators.catalogue import OPERATORS

PATCH_SOURCE = """\
import importlib.abc, importlib.machinery, sys

class AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            plain, rows = module.matmul, {rows}
            def matmul(lhs, rhs):
                plain(lhs[:rows], rhs)
                return plain(lhs, rhs)
            module.matmul = matmul
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, AfterTorch())
"""
UNCHANGED_OPERATORS = """
    add subtract multiply divide abs exp log sqrt rsqrt sin cos tanh sigmoid relu gelu silu softmax log_softmax sum mean
    std var amax argmax cumsum sort topk gather index_select where cat stack transpose_contiguous flip roll linear bmm
    mv outer conv1d conv2d max_pool2d avg_pool2d batch_norm layer_norm group_norm cross_entropy mse_loss embedding
    fft_rfft
""".split()  # noqa: SIM905
PLANTED_SLOWDOWN = 0.05
UNCHANGED_OPERATOR_BUDGET = (
    "5s"  # per unchanged operator; trials of the slowed operator have the default budget of `tessera ab`
)
CALIBRATION_SECONDS = 60.0  # seconds to measure the slowdown for each number of extra rows


def find_planted_slowdown(trials: int, log: Callable[[str], None]) -> dict[str, Any]:
    rows, measured = _find_extra_rows(PLANTED_SLOWDOWN)
    log(f"planted: {rows} extra rows, measured slowdown {measured:+.2%}")
    with TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(PATCH_SOURCE.replace("{rows}", str(rows)))
        verdicts = []
        for number in range(trials):
            verdicts += _run_ab(folder, "matmul")
            log(f"planted, trial {number + 1} of {trials}: {verdicts[-1]}")
        log(f"unchanged: {len(UNCHANGED_OPERATORS)} operators")
        unchanged = _run_ab(folder, *UNCHANGED_OPERATORS, "--budget", UNCHANGED_OPERATOR_BUDGET)
    detections = sum(verdict["verdict"] == "slower" for verdict in verdicts)
    alarms = [verdict["name"] for verdict in unchanged if verdict["verdict"] in ("slower", "faster")]
    slower = sum(verdict["verdict"] == "slower" for verdict in unchanged)
    lines = [
        f"matmul slowed by {measured:.2%} in a second interpreter: detected in {detections} of {trials} trials",
        f"unchanged operators reported as slower: {slower} of {len(unchanged)}"
        + (f" (false alarms: {', '.join(alarms)})" if alarms else ""),
    ]
    return {"planted": measured, "trials": verdicts, "found": detections, "unchanged": unchanged, "lines": lines}


def build_slowed_matmul(rows: int) -> Callable[[], object]:
    """Return a function that calls matmul, slowed as by the patch with `rows` extra rows."""
    import torch

    inputs = OPERATORS["matmul"].get_inputs("medium")
    lhs, rhs = (torch.randn(inputs[name].shape) for name in ("lhs", "rhs"))

    def call() -> None:
        if rows:
            torch.matmul(lhs[:rows], rhs)
        torch.matmul(lhs, rhs)

    return call


def _find_extra_rows(share: float) -> tuple[int, float]:
    """Return the smallest number of extra rows that slows matmul by at least `share`, and the measured slowdown.

    The slowdown is measured between processes, as in the trials but longer; within one process it would be larger.
    """
    with ABRunner(LaunchConfig(), LaunchConfig()) as sides:
        for rows in range(8, 64, 4):
            compared = sides.compare(
                "operators.planted:build_slowed_matmul", (0,), (rows,), budget=CALIBRATION_SECONDS, target=0.0
            )
            if (slowdown := compared.ratio().value - 1) >= share:
                return rows, slowdown
    raise RuntimeError(f"no number of extra rows below 64 slows matmul by {share:.0%}")


def _run_ab(folder: str, *arguments: str) -> list[dict[str, Any]]:
    """Run the command `tessera ab` with the patch in the second interpreter, and return its verdicts."""
    command = [sys.executable, "-m", "tessera", "ab", *arguments, "--env-b", f"PYTHONPATH={folder}", "--json"]
    command += ["--store", os.path.join(folder, "store.sqlite")]
    completed = subprocess.run(command, capture_output=True, text=True)
    if completed.returncode not in (0, 1):
        raise RuntimeError(completed.stderr)
    records = json.loads(completed.stdout)["records"]
    return [
        {
            "name": record["case"]["name"],
            "verdict": record["verdict"] or record["status"],
            **{name: record["metrics"][name]["value"] for name in ("ratio", "low", "high") if record["metrics"]},
        }
        for record in records
    ]
