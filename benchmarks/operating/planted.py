"""A torch operator slowed by 5 % in a second interpreter, to be found by `tessera ab`; and 50 operators left alone.

The patch is a `sitecustomize` that only the second interpreter sees: when torch is imported there, `torch.matmul`
multiplies some more rows of the same buffers after its own work.
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

from tessera.launch import LaunchConfig
from tessera.launch.alternate import Alternator
from tessera.operators.catalogue import OPERATORS

PATCH = """\
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
UNCHANGED = """
    add subtract multiply divide abs exp log sqrt rsqrt sin cos tanh sigmoid relu gelu silu softmax log_softmax sum mean
    std var amax argmax cumsum sort topk gather index_select where cat stack transpose_contiguous flip roll linear bmm
    mv outer conv1d conv2d max_pool2d avg_pool2d batch_norm layer_norm group_norm cross_entropy mse_loss embedding
    fft_rfft
""".split()  # noqa: SIM905
SHARE = 0.05
UNCHANGED_BUDGET = "5s"  # for each of the fifty; a planted trial takes what `tessera ab` takes by itself
CALIBRATION = 60.0  # seconds for each size of the plant


def planted_slowdown(trials: int, say: Callable[[str], None]) -> dict[str, Any]:
    rows, measured = _rows_for(SHARE)
    say(f"planted: {rows} rows more, measured {measured:+.2%}")
    with TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(PATCH.replace("{rows}", str(rows)))
        verdicts = []
        for number in range(trials):
            verdicts += _ab(folder, "matmul")
            say(f"planted, trial {number + 1} of {trials}: {verdicts[-1]}")
        say(f"unchanged: {len(UNCHANGED)} operators")
        unchanged = _ab(folder, *UNCHANGED, "--budget", UNCHANGED_BUDGET)
    found = sum(verdict["verdict"] == "slower" for verdict in verdicts)
    alarms = [verdict["name"] for verdict in unchanged if verdict["verdict"] in ("slower", "faster")]
    slower = sum(verdict["verdict"] == "slower" for verdict in unchanged)
    lines = [
        f"matmul slowed by {measured:.2%} in a second interpreter: found in {found} of {trials} trials",
        f"unchanged operators called slower: {slower} of {len(unchanged)}"
        + (f" (called anything: {', '.join(alarms)})" if alarms else ""),
    ]
    return {"planted": measured, "trials": verdicts, "found": found, "unchanged": unchanged, "lines": lines}


def slowed(rows: int) -> Callable[[], object]:
    """What the patch makes of an operator, in the process that calls it."""
    import torch

    inputs = OPERATORS["matmul"].inputs("medium")
    lhs, rhs = (torch.randn(inputs[name].shape) for name in ("lhs", "rhs"))

    def call() -> None:
        if rows:
            torch.matmul(lhs[:rows], rhs)
        torch.matmul(lhs, rhs)

    return call


def _rows_for(share: float) -> tuple[int, float]:
    """How many rows more make at least the share, in processes like those that will be compared, but for much longer.

    In one process, call beside call, eight rows were seen to take 5.8 %; between processes 3 to 4 %.
    """
    with Alternator(LaunchConfig(), LaunchConfig()) as sides:
        for rows in range(8, 64, 4):
            compared = sides.compare("operating.planted:slowed", (0,), (rows,), budget=CALIBRATION, target=0.0)
            if (found := compared.ratio().value - 1) >= share:
                return rows, found
    raise RuntimeError("no plant is large enough")


def _ab(folder: str, *words: str) -> list[dict[str, Any]]:
    """`tessera ab` as a user runs it, the second interpreter with the patch."""
    command = [sys.executable, "-m", "tessera", "ab", *words, "--env-b", f"PYTHONPATH={folder}", "--json"]
    command += ["--store", os.path.join(folder, "store.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    records = json.loads(done.stdout)["records"]
    return [
        {
            "name": record["case"]["name"],
            "verdict": record["notes"][0] if record["notes"] else record["status"],
            **{name: record["metrics"][name]["value"] for name in ("ratio", "low", "high") if record["metrics"]},
        }
        for record in records
    ]
