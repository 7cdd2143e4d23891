"""Detect whether this process is a rank of a job that the user started with torchrun, mpiexec or Slurm."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

# Environment variable in every worker that Tessera launches: such a worker is not a rank of a user's job.
WORKER_VARIABLE = "TESSERA_WORKER"

# Environment variables with size, rank, local rank and local size: of Open MPI, then of MPICH and its derivatives.
_MPI_JOB_VARIABLES = (
    (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
_JOB_VARIABLE_PREFIXES = (
    "OMPI_COMM_WORLD_",
    "PMIX_",
    "PMI_",
    "PRTE_",
    "HYDI_",
    "MPI_LOCAL",
    "SLURM_",
    "TORCHELASTIC_",
    "GROUP_",
    "ROLE_",
)
_JOB_VARIABLES = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job that this process belongs to: its launcher, the process's rank, and the number of ranks.

    `local_rank` and `local_size` count the ranks on this machine only.
    """

    kind: Literal["torchrun", "mpiexec", "slurm"]
    rank: int
    size: int
    local_rank: int
    local_size: int


def get_current_job(env: Mapping[str, str] = os.environ) -> Job | None:
    """Return the job that this process is a rank of; None outside a job and in a worker that Tessera launched.

    >>> get_current_job({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    Job(kind='mpiexec', rank=1, size=2, local_rank=1, local_size=2)
    >>> get_current_job({"PATH": "/bin"})
    """
    return None if WORKER_VARIABLE in env else read_job(env)


def read_job(env: Mapping[str, str]) -> Job | None:
    """Return the job and rank that a launcher wrote into the environment, even if Tessera started the launcher.

    The innermost launcher takes precedence: torchrun and mpiexec are often started inside a Slurm job.
    """
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= env.keys():
        return _read_variables("torchrun", env, "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for names in _MPI_JOB_VARIABLES:
        if names[0] in env and names[1] in env:
            return _read_variables("mpiexec", env, *names)
    # Only srun sets the variables of a step; a batch script has the variables of the allocation but is one process.
    if int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in env:
        names = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")
        job = _read_variables("slurm", env, *names)
        return replace(job, local_size=_count_slurm_tasks(env) or job.local_size)
    return None


def _read_variables(
    kind: Literal["torchrun", "mpiexec", "slurm"],
    env: Mapping[str, str],
    size: str,
    rank: str,
    local_rank: str,
    local_size: str,
) -> Job:
    return Job(
        kind=kind,
        rank=int(env[rank]),
        size=int(env[size]),
        local_rank=int(env.get(local_rank, env[rank])),
        local_size=int(env.get(local_size, env[size])),
    )


def _count_slurm_tasks(env: Mapping[str, str]) -> int | None:
    """Return the number of tasks on this node, from Slurm's list of tasks per node; None without that list.

    >>> _count_slurm_tasks({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "2"})
    1
    """
    # The list of the step takes precedence, because the allocation may be larger.
    for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
        nodes = [
            int(tasks)
            for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env.get(name, ""))
            for _ in range(int(times or 1))
        ]
        here = int(env.get("SLURM_NODEID", "0"))
        if here < len(nodes):
            return nodes[here]
    return None


def strip_job_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that make a process part of a job."""
    return {k: v for k, v in env.items() if k not in _JOB_VARIABLES and not k.startswith(_JOB_VARIABLE_PREFIXES)}
