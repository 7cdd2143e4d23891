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


def test_settings_of_libraries_survive_outside_of_a_job() -> None:
    kept = {"OMPI_MCA_btl": "self,sm", "PATH": "/bin", "OMP_NUM_THREADS": "2"}
    assert outside_job(kept | OPENMPI | SLURM | TORCHRUN) == kept
