"""Tests of the detection of the current job, from the environment variables of each launcher."""

from __future__ import annotations

import pytest

from tessera.launch.job import WORKER_VARIABLE, Job, get_current_job, strip_job_variables

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node7",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS_PER_NODE": "2",
}


@pytest.mark.parametrize(
    ("kind", "env"), [("torchrun", TORCHRUN), ("mpiexec", OPENMPI), ("mpiexec", MPICH), ("slurm", SLURM)]
)
def test_a_rank_is_recognised(kind: str, env: dict[str, str]) -> None:
    assert get_current_job(env) == Job(kind=kind, rank=3, size=4, local_rank=1, local_size=2)  # type: ignore[arg-type]
    assert get_current_job(env | {WORKER_VARIABLE: "torchrun"}) is None
    assert get_current_job(strip_job_variables(env)) is None


def test_the_innermost_launcher_is_used() -> None:
    assert get_current_job(SLURM | OPENMPI) == get_current_job(OPENMPI)
    assert get_current_job(SLURM | TORCHRUN) == get_current_job(TORCHRUN)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "2"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "5"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
    ids=["none", "half of torchrun's", "a batch script", "a step of one"],
)
def test_processes_outside_of_a_job(env: dict[str, str]) -> None:
    assert get_current_job(env) is None


@pytest.mark.parametrize(
    ("tasks", "sizes"),
    [("2", [2]), ("2(x2)", [2, 2]), ("2(x2),1", [2, 2, 1]), ("1,3(x2),2", [1, 3, 3, 2])],
)
@pytest.mark.parametrize("name", ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"])
def test_local_size_from_slurm_tasks_per_node(name: str, tasks: str, sizes: list[int]) -> None:
    step = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "8", name: tasks}
    jobs = [get_current_job(step | {"SLURM_NODEID": str(node)}) for node in range(len(sizes))]
    assert [job.local_size for job in jobs if job is not None] == sizes


def test_the_tasks_of_a_slurm_step_override_those_of_the_allocation() -> None:
    second = {"SLURM_NODEID": "1", "SLURM_LOCALID": "0"}
    lists = {"SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_TASKS_PER_NODE": "8(x2)"}
    assert get_current_job(SLURM | second | lists) == Job(kind="slurm", rank=3, size=4, local_rank=0, local_size=1)


def test_strip_job_variables_keeps_library_settings() -> None:
    kept = {"OMPI_MCA_btl": "self,sm", "PATH": "/bin", "OMP_NUM_THREADS": "2"}
    assert strip_job_variables(kept | OPENMPI | SLURM | TORCHRUN) == kept
