"""The main program of a worker process: `python -m tessera.launch.serve DIRECTORY [RANK SOCKETS [STORE]]`.

SOCKETS and STORE are inherited file descriptors: the connections to other ranks, and the store of torch.distributed.
Without a rank the process was started by mpiexec, and reads its rank from the environment.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import socket
import sys
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path

from tessera.affinity import set_affinity
from tessera.launch.bootstrap import (
    WorkerBootstrap,
    get_control_socket_path,
    get_lifeline_socket_path,
    get_output_socket_path,
)
from tessera.launch.job import read_job
from tessera.launch.lifeline import attach_to_lifeline
from tessera.launch.output import connect_output
from tessera.launch.ranks import LocalGlooRanks, MpiRanks, StarRanks
from tessera.launch.worker import Worker, call_function, pack_reply
from tessera.measure.sync import SINGLE_RANK, Sync


def main(argv: list[str]) -> None:
    """Connect to the launching process, and run its calls until it closes the connection."""
    directory = Path(argv[0])
    attach_to_lifeline(get_lifeline_socket_path(directory), signal.SIGKILL)
    bootstrap = WorkerBootstrap.read(directory)
    if len(argv) > 1:
        rank = int(argv[1])
    else:
        job = read_job(os.environ)
        assert job is not None, "neither an argument nor the environment names the rank"
        rank = job.rank
        connect_output(get_output_socket_path(directory), rank)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    if bootstrap.cpus[rank]:
        set_affinity(bootstrap.cpus[rank])
    worker = Worker(
        rank=rank,
        size=bootstrap.size,
        spawn=bootstrap.spawn,
        cpus=bootstrap.cpus[rank],
        threads=bootstrap.threads,
        sync=_connect_ranks(bootstrap, rank, *argv[2:]),
    )
    control = _connect(get_control_socket_path(directory))
    control.send_bytes(pickle.dumps((rank, os.getpid())))
    _serve(control, worker)


def _serve(control: Connection, worker: Worker) -> None:
    while True:
        try:
            task = pickle.loads(control.recv_bytes())
        except EOFError:
            return
        if task is None:
            return
        control.send_bytes(pack_reply(worker, call_function(worker, *task)))


def _connect_ranks(bootstrap: WorkerBootstrap, rank: int, sockets: str = "", store: str = "") -> Sync:
    if bootstrap.size == 1:
        return SINGLE_RANK
    if bootstrap.spawn == "mpiexec":
        return MpiRanks(rank, bootstrap.size)
    star = StarRanks(rank, [Connection(int(fd)) for fd in sockets.split(",")])
    if bootstrap.spawn == "processes":
        return star
    # A model of the user may read the variables that torchrun sets. None of them names an address.
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(bootstrap.size))
    return LocalGlooRanks(rank, bootstrap.size, int(store), star)


def _connect(path: str) -> Connection:
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    return Connection(line.detach())


if __name__ == "__main__":
    main(sys.argv[1:])
