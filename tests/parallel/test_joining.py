"""Tests that a program started inside a torchrun or mpiexec job joins the job instead of launching workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tessera.launch.commands import _make_mpiexec_args
from tessera.launch.config import LaunchConfig

pytestmark = [pytest.mark.timeout(100), pytest.mark.ranks]

PROGRAM = """
import json, os, sys
from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
try:
    with Workers(LaunchConfig(spawn="processes", workers={workers}, time_limit={limit})) as workers:
        body = {body}
    job = workers.job
    result = dict(rank=job.rank, kind=job.kind, root=workers.is_root, pid=os.getpid(), body=body)
except TesseraError as error:
    result = dict(error=str(error))
with open(sys.argv[1] + "." + str(os.getpid()), "w") as file:
    json.dump(result, file)
"""


def run_job(
    kind: str, tmp_path: Path, body: str, workers: int = 2, limit: float = 50
) -> tuple[list[dict[str, Any]], int, str]:
    """Run a program on two ranks; return the results that the ranks wrote, the exit code and the output."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM.format(body=body, workers=workers, limit=limit)))
    if kind == "torchrun":
        starter: tuple[str, ...] = (
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
        )
    else:
        starter = (*_make_mpiexec_args(LaunchConfig(spawn="mpiexec", workers=2)), sys.executable)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*starter, str(program), str(tmp_path / "result")], env=env, capture_output=True, text=True, timeout=80
    )
    results = [json.loads(path.read_text()) for path in tmp_path.glob("result.*")]
    return sorted(results, key=lambda result: result.get("rank", -1)), done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["torchrun", "mpiexec"])
def test_every_rank_gets_all_results(kind: str, tmp_path: Path) -> None:
    multiply, step = (
        '"tests.launch.worker_functions:multiply_rank", 7',
        '"tests.launch.worker_functions:keep_step", 40, 0.1',
    )
    body = f"[workers.run({multiply}), workers.run({step})]"
    results, code, output = run_job(kind, tmp_path, body)
    assert code == 0, output
    assert [(result["rank"], result["root"], result["kind"]) for result in results] == [
        (0, True, kind),
        (1, False, kind),
    ]
    times, steps = results[0]["body"]
    assert results[1]["body"] == [times, steps]
    assert times == [[0, 2, results[0]["pid"]], [7, 2, results[1]["pid"]]], "the ranks themselves ran the function"
    assert [agreed for agreed, _, _ in steps] == [40, 40]


@pytest.mark.parametrize("kind", [pytest.param("torchrun", marks=pytest.mark.slow), "mpiexec"])
def test_an_error_reaches_every_rank(kind: str, tmp_path: Path) -> None:
    results, code, output = run_job(kind, tmp_path, 'workers.run("tests.launch.worker_functions:raise_on_rank", 1)')
    assert code == 0, output
    assert len(results) == 2
    assert all(result["error"].startswith("rank 1 of 2 raised ZeroDivisionError: nothing left") for result in results)


def test_the_number_of_workers_must_match_the_job(tmp_path: Path) -> None:
    results, _, output = run_job("mpiexec", tmp_path, "None", workers=4)
    assert len(results) == 2, output
    assert {result["error"] for result in results} == {
        "the number of workers must equal the number of ranks of this mpiexec job: got '4 workers'; allowed: 2; "
        "request 2 workers, or start Tessera outside of the job"
    }


@pytest.mark.parametrize("kind", [pytest.param("torchrun", marks=pytest.mark.slow), "mpiexec"])
def test_the_time_limit_ends_the_job(kind: str, tmp_path: Path) -> None:
    began = time.monotonic()
    results, code, output = run_job(kind, tmp_path, 'workers.run("tests.launch.worker_functions:pause", 60.0)', limit=1)
    assert time.monotonic() - began < 40
    assert (results, code != 0) == ([], True)
    assert "ends the job: no answer within the time limit of 1 s" in output
