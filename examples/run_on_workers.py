"""Run a function on pinned processes; the same code runs on ranks with spawn="torchrun" or "mpiexec"."""

import os

from tessera.launch import LaunchConfig, Worker, Workers


def describe_rank(worker: Worker, greeting: str) -> str:
    worker.sync.barrier()
    return f"{greeting} from rank {worker.rank} of {worker.size}, on cores {sorted(os.sched_getaffinity(0))}"


if __name__ == "__main__":
    with Workers(LaunchConfig(workers=2)) as workers:
        for line in workers.run("run_on_workers:describe_rank", "hello"):
            print(line)
