"""Is this process a rank of a job that somebody else started?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

# Set in every process of a launch of ours, so that its ranks do not take themselves for a user's job.
WORKER_MARK = "TESSERA_WORKER"

# Size, rank, and both on this machine, as launchers of MPI ranks name them: Open MPI, then MPICH and its kin.
_MPI = (
    (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
_JOB_PREFIXES = (
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
_JOB_NAMES = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One rank of a job; `local_rank` of `local_size` counts the ranks on this machine alone."""

    kind: Literal["torchrun", "mpiexec", "slurm"]
    rank: int
    size: int
    local_rank: int
    local_size: int


def current_job(env: Mapping[str, str] = os.environ) -> Job | None:
    """The job this process is a rank of, or None; a worker that Tessera launched is in no job.

    >>> current_job({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    Job(kind='mpiexec', rank=1, size=2, local_rank=1, local_size=2)
    >>> current_job({"PATH": "/bin"})
    """
    return None if WORKER_MARK in env else rank_in(env)


def rank_in(env: Mapping[str, str]) -> Job | None:
    """The rank that a launcher wrote into the environment, whoever started that launcher.

    The innermost launcher is asked first: torchrun and mpiexec are often started from within Slurm.
    """
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= env.keys():
        return _job("torchrun", env, "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for names in _MPI:
        if names[0] in env and names[1] in env:
            return _job("mpiexec", env, *names)
    # Only srun sets the tasks of a step; a batch script sees the allocation's variables but is one process.
    if int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_PROCID" in env:
        names = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")
        found = _job("slurm", env, *names)
        return replace(found, local_size=_slurm_tasks_here(env) or found.local_size)
    return None


def _job(
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


def _slurm_tasks_here(env: Mapping[str, str]) -> int | None:
    """How many tasks this node has, by Slurm's list of all nodes; None without one.

    >>> _slurm_tasks_here({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "2"})
    1
    """
    # Of the step before that of the allocation, which may be larger.
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


def outside_job(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that make a process part of a job."""
    return {k: v for k, v in env.items() if k not in _JOB_NAMES and not k.startswith(_JOB_PREFIXES)}
