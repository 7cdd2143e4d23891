"""Live worker processes, seen from the process that started them."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import socket
import subprocess
import time
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from tessera.errors import BenchmarkFailed, TesseraError, TimedOut
from tessera.launch import lifeline
from tessera.launch.config import LaunchConfig
from tessera.launch.fresh import Died
from tessera.launch.output import LAUNCHER, Output, last_words
from tessera.launch.peers import star
from tessera.launch.placement import available_cpus, numa_nodes, placement
from tessera.launch.plan import Plan, control_socket, lifeline_socket, output_socket, private_directory
from tessera.launch.spawns import Command, commands, environment, exit_status
from tessera.launch.tree import end_tree
from tessera.launch.worker import Reply, unpack

if TYPE_CHECKING:
    import psutil

START_LIMIT = 120.0  # an interpreter, torch's agent and its rendezvous on a loaded machine
PATIENCE = 2.0  # after a first failure: for the other ranks to end, and for the death that explains it to show
VERDICT = 4.0  # for mpiexec or torch's agent to say how its rank ended
FAREWELL = 10.0  # for workers to leave by themselves


class Launched:
    """The workers of one launch. A failure that leaves some rank without an answer ends them all."""

    def __init__(self, config: LaunchConfig) -> None:
        self._config, self._size = config, config.workers
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._controls: dict[int, Connection] = {}
        self._processes: dict[int, psutil.Process] = {}  # of ranks, and LAUNCHER
        self._pidfds: dict[int, int] = {}
        self._directory = private_directory()
        self._all_idle = True
        self.alive = True
        try:
            self._lifeline = lifeline.listen(lifeline_socket(self._directory), self._size)
            self._output = Output(output_socket(self._directory), self._size, config.tag_output)
            self._start()
        except BaseException:
            self.close(kill=True)
            raise
        # Everybody is connected: the files have done their work, and a killed parent leaves none behind.
        shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]:
        """Call a function on every rank: the values by rank, or the error that explains why not."""
        try:
            task = pickle.dumps((target, args))
        except Exception as error:
            raise TesseraError("the arguments of a worker function have to be picklable", got=str(error)) from None
        try:
            return self._run(task, limit)
        except BaseException:
            if not self._all_idle:
                self.close(kill=True)
            raise

    def close(self, *, kill: bool) -> None:
        """End the workers: by themselves, or at once; whatever they started ends with them."""
        if not self.alive:
            return
        self.alive = False
        if not kill:
            self._bid_farewell()
        try:
            end_tree([*self._processes.values()])
        finally:
            for process in self._started.values():
                process.kill()  # of a process that has ended it asks nothing
                process.wait()
            for control in self._controls.values():
                control.close()
            for fd in self._pidfds.values():
                os.close(fd)
            for part in ("_lifeline", "_output"):
                if hasattr(self, part):
                    getattr(self, part).close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> None:
        config = self._config
        pinned = placement(self._size, config.threads, available_cpus(), numa_nodes()) if config.pin else ()
        Plan(spawn=config.spawn, size=self._size, threads=config.threads, cpus=pinned or ((),) * self._size).write(
            self._directory
        )
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(control_socket(self._directory))
            listener.listen(self._size)
            links = star(self._size) if config.spawn == "processes" else []
            for link in (link for row in links for link in row):
                stack.enter_context(link)
            env = environment(config)
            for command in commands(config, self._directory, [[s.fileno() for s in row] for row in links]):
                self._spawn(command, env)
            self._welcome(listener)

    def _spawn(self, command: Command, env: dict[str, str]) -> None:
        import psutil

        with self._output.pipe_for(command.rank) as written:
            try:
                process = subprocess.Popen(
                    command.argv,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=written.fileno(),
                    stderr=written.fileno(),
                    pass_fds=command.fds,
                    process_group=0,
                )
            except OSError as error:
                raise BenchmarkFailed("a worker does not start", got=command.argv[0], do=str(error)) from None
        self._started[command.rank] = process
        self._watch(command.rank, psutil.Process(process.pid))

    def _watch(self, rank: int, process: psutil.Process) -> None:
        self._processes[rank] = process
        self._pidfds[rank] = os.pidfd_open(process.pid)

    def _welcome(self, listener: socket.socket) -> None:
        """Wait until every rank has said who it is."""
        import psutil

        deadline = time.monotonic() + START_LIMIT
        while len(self._controls) < self._size:
            ready = wait([listener, *self._pidfds.values()], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BenchmarkFailed(f"the workers did not start within {START_LIMIT:g} s; {self._said(LAUNCHER)}")
            for rank, fd in self._pidfds.items():
                if fd in ready:
                    raise self._death(rank)
            if listener in ready:
                accepted, _ = listener.accept()
                control = Connection(accepted.detach())
                try:
                    rank, pid = pickle.loads(control.recv_bytes())
                    if rank not in self._processes:
                        self._watch(rank, psutil.Process(pid))
                except (EOFError, ProcessLookupError, psutil.NoSuchProcess):
                    raise BenchmarkFailed(f"a rank died while it started; {self._said(LAUNCHER)}") from None
                self._controls[rank] = control

    def _run(self, task: bytes, limit: float | None) -> list[Any]:
        replies: dict[int, Reply] = {}
        self._all_idle = False
        for rank, control in self._controls.items():
            try:
                control.send_bytes(task)
            except OSError:
                raise self._death(rank) from None
        deadline = None if limit is None else time.monotonic() + limit
        failed_at: float | None = None
        dead: list[int] = []
        while len(replies) < self._size and not dead:
            until = min([t for t in (deadline, failed_at and failed_at + PATIENCE) if t is not None], default=None)
            left = None if until is None else max(0.0, until - time.monotonic())
            waiting: dict[Connection | int, int] = {self._controls[r]: r for r in self._controls if r not in replies}
            watched = {fd: rank for rank, fd in self._pidfds.items()}
            ready = wait([*waiting, *watched], left)
            if not ready:
                break
            for source in ready:
                if isinstance(source, Connection):
                    rank = waiting[source]
                    try:
                        replies[rank] = unpack(rank, source.recv_bytes())
                    except (EOFError, OSError):
                        dead.append(rank)
                        continue
                    if replies[rank].error is not None and failed_at is None:
                        failed_at = time.monotonic()
            dead += [rank for fd, rank in watched.items() if fd in ready and rank not in replies and rank not in dead]
        if dead:
            # A launcher that ends does so because a rank did.
            raise self._death(next((r for r in dead if r != LAUNCHER), LAUNCHER))
        self._all_idle = len(replies) == self._size
        for rank, reply in sorted(replies.items()):
            if isinstance(reply.error, Died):
                raise BenchmarkFailed(f"{reply.error}; {self._said(rank)}")
            if reply.error is not None:
                raise reply.error
        if not self._all_idle:
            silent = ", ".join(str(r) for r in range(self._size) if r not in replies)
            raise TimedOut(f"no answer within the time limit of {limit:g} s from rank {silent} of {self._size}")
        return [replies[rank].value for rank in range(self._size)]

    def _death(self, rank: int) -> BenchmarkFailed:
        """What is known of a process that is gone; mpiexec and torch's agent get time for their verdict."""
        started = self._started.get(rank) or self._started[LAUNCHER]
        try:
            code: int | None = started.wait(VERDICT)
        except subprocess.TimeoutExpired:
            code = None
        if rank not in self._started and code is not None:
            code = exit_status(self._processes[rank].pid, code, "\n".join(self._output.tail(LAUNCHER, wait=1.0)))
        who = "the launcher of the ranks" if rank == LAUNCHER else f"rank {rank} of {self._size}"
        return BenchmarkFailed(f"{who} {_how(code)}; {self._said(rank)}")

    def _said(self, rank: int) -> str:
        words = last_words(self._output.tail(rank, wait=1.0))
        if not words and rank != LAUNCHER:
            words = last_words(self._output.tail(LAUNCHER)) if LAUNCHER in self._started else ""
        return f"last words: {words}" if words else "it left no last words"

    def _bid_farewell(self) -> None:
        for control in self._controls.values():
            with contextlib.suppress(OSError):
                control.send_bytes(pickle.dumps(None))
        deadline, left = time.monotonic() + FAREWELL, set(self._pidfds.values())
        while left and (ready := wait(list(left), max(0.0, deadline - time.monotonic()))):
            left.difference_update(fd for fd in ready if isinstance(fd, int))


def _how(code: int | None) -> str:
    """
    >>> _how(-11), _how(3), _how(None)
    ('died of SIGSEGV', 'ended with exit code 3', 'died')
    """
    if code is None:
        return "died"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
