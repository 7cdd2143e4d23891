"""Which job this process belongs to, as each launcher tells it."""

from __future__ import annotations

import pytest

from tessera.launch.job import WORKER_MARK, Job, current_job, outside_job

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
    assert current_job(env) == Job(kind=kind, rank=3, size=4, local_rank=1, local_size=2)  # type: ignore[arg-type]
    assert current_job(env | {WORKER_MARK: "torchrun"}) is None
    assert current_job(outside_job(env)) is None


def test_the_innermost_launcher_counts() -> None:
    assert current_job(SLURM | OPENMPI) == current_job(OPENMPI)
    assert current_job(SLURM | TORCHRUN) == current_job(TORCHRUN)


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
def test_what_is_no_job(env: dict[str, str]) -> None:
    assert current_job(env) is None


@pytest.mark.parametrize(
    ("tasks", "sizes"),
    [("2", [2]), ("2(x2)", [2, 2]), ("2(x2),1", [2, 2, 1]), ("1,3(x2),2", [1, 3, 3, 2])],
)
@pytest.mark.parametrize("name", ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"])
def test_slurm_says_how_many_ranks_each_node_has(name: str, tasks: str, sizes: list[int]) -> None:
    step = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "8", name: tasks}
    jobs = [current_job(step | {"SLURM_NODEID": str(node)}) for node in range(len(sizes))]
    assert [job.local_size for job in jobs if job is not None] == sizes


def test_the_tasks_of_a_step_count_before_those_of_the_allocation_and_those_asked_for() -> None:
    second = {"SLURM_NODEID": "1", "SLURM_LOCALID": "0"}
    lists = {"SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_TASKS_PER_NODE": "8(x2)"}
    assert current_job(SLURM | second | lists) == Job(kind="slurm", rank=3, size=4, local_rank=0, local_size=1)


def test_settings_of_libraries_survive_outside_of_a_job() -> None:
    kept = {"OMPI_MCA_btl": "self,sm", "PATH": "/bin", "OMP_NUM_THREADS": "2"}
    assert outside_job(kept | OPENMPI | SLURM | TORCHRUN) == kept
