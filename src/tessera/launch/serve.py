"""The life of a worker process: `python -m tessera.launch.serve DIRECTORY [RANK SOCKETS]`.

Without a rank the process was started by torchrun or mpiexec, and finds its rank where they write it.
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

from tessera.launch.job import rank_in
from tessera.launch.lifeline import hold_on
from tessera.launch.output import connect_output
from tessera.launch.peers import Star
from tessera.launch.plan import Plan, control_socket, lifeline_socket, output_socket
from tessera.launch.ranks import GlooRanks, MpiRanks
from tessera.launch.worker import Worker, pack, perform
from tessera.measure.sync import ALONE, Sync


def main(argv: list[str]) -> None:
    directory = Path(argv[0])
    hold_on(lifeline_socket(directory), signal.SIGKILL)
    plan = Plan.read(directory)
    if len(argv) > 1:
        rank = int(argv[1])
    else:
        job = rank_in(os.environ)
        assert job is not None, "started without a rank, and by no launcher of ranks"
        rank = job.rank
        connect_output(output_socket(directory), rank)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    if plan.cpus[rank]:
        os.sched_setaffinity(0, plan.cpus[rank])
    worker = Worker(
        rank=rank,
        size=plan.size,
        spawn=plan.spawn,
        cpus=plan.cpus[rank],
        threads=plan.threads,
        sync=_sync(plan, rank, argv[2] if len(argv) > 2 else ""),
    )
    control = _connect(control_socket(directory))
    control.send_bytes(pickle.dumps((rank, os.getpid())))
    _answer_until_told(control, worker)


def _answer_until_told(control: Connection, worker: Worker) -> None:
    while True:
        try:
            task = pickle.loads(control.recv_bytes())
        except EOFError:
            return
        if task is None:
            return
        control.send_bytes(pack(worker, perform(worker, *task)))


def _sync(plan: Plan, rank: int, sockets: str) -> Sync:
    if plan.size == 1:
        return ALONE
    if plan.spawn == "processes":
        return Star(rank, [Connection(int(fd)) for fd in sockets.split(",")])
    return GlooRanks(rank, plan.size) if plan.spawn == "torchrun" else MpiRanks(rank, plan.size)


def _connect(path: str) -> Connection:
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    return Connection(line.detach())


if __name__ == "__main__":
    main(sys.argv[1:])
