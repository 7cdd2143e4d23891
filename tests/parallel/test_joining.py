"""The same program inside a torchrun or mpiexec job joins it instead of launching."""

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

from tessera.launch.config import LaunchConfig
from tessera.launch.spawns import _mpiexec

pytestmark = [pytest.mark.timeout(100), pytest.mark.ranks]

PROGRAM = """
import json, os, sys
from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
try:
    with Workers(LaunchConfig(spawn="processes", workers={workers}, time_limit={limit})) as workers:
        body = {body}
    job = workers.job
    said = dict(rank=job.rank, kind=job.kind, root=workers.is_root, pid=os.getpid(), body=body)
except TesseraError as error:
    said = dict(error=str(error))
with open(sys.argv[1] + "." + str(os.getpid()), "w") as file:
    json.dump(said, file)
"""


def run_job(
    kind: str, tmp_path: Path, body: str, workers: int = 2, limit: float = 50
) -> tuple[list[dict[str, Any]], int, str]:
    """Two ranks of a job that a user starts; what each of them said, the exit code, and the output."""
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
        starter = (*_mpiexec(LaunchConfig(spawn="mpiexec", workers=2)), sys.executable)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*starter, str(program), str(tmp_path / "said")], env=env, capture_output=True, text=True, timeout=80
    )
    said = [json.loads(path.read_text()) for path in tmp_path.glob("said.*")]
    return sorted(said, key=lambda s: s.get("rank", -1)), done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["torchrun", "mpiexec"])
def test_every_rank_gets_all_results(kind: str, tmp_path: Path) -> None:
    body = '[workers.run("tests.launch.chores:times", 7), workers.run("tests.launch.chores:keep_step", 40, 0.1)]'
    said, code, output = run_job(kind, tmp_path, body)
    assert code == 0, output
    assert [(s["rank"], s["root"], s["kind"]) for s in said] == [(0, True, kind), (1, False, kind)]
    times, steps = said[0]["body"]
    assert said[1]["body"] == [times, steps]
    assert times == [[0, 2, said[0]["pid"]], [7, 2, said[1]["pid"]]], "the ranks themselves ran the function"
    assert [agreed for agreed, _, _ in steps] == [40, 40]


@pytest.mark.parametrize("kind", [pytest.param("torchrun", marks=pytest.mark.slow), "mpiexec"])
def test_an_error_reaches_every_rank(kind: str, tmp_path: Path) -> None:
    said, code, output = run_job(kind, tmp_path, 'workers.run("tests.launch.chores:stumble", 1)')
    assert code == 0, output
    assert len(said) == 2
    assert all(s["error"].startswith("rank 1 of 2 raised ZeroDivisionError: nothing left") for s in said)


def test_the_number_of_workers_has_to_agree(tmp_path: Path) -> None:
    said, _, output = run_job("mpiexec", tmp_path, "None", workers=4)
    assert len(said) == 2, output
    assert {s["error"] for s in said} == {
        "this mpiexec job has 2 ranks: got '4 workers'; allowed: 2; "
        "ask for 2 workers, or start Tessera outside of the job"
    }


@pytest.mark.parametrize("kind", [pytest.param("torchrun", marks=pytest.mark.slow), "mpiexec"])
def test_the_time_limit_ends_the_job(kind: str, tmp_path: Path) -> None:
    began = time.monotonic()
    said, code, output = run_job(kind, tmp_path, 'workers.run("tests.launch.chores:pause", 60.0)', limit=1)
    assert time.monotonic() - began < 40
    assert (said, code != 0) == ([], True)
    assert "ends the job: no answer within the time limit of 1 s" in output
