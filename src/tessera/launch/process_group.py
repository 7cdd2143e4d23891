"""Start worker processes, call functions in them, and end them with all their children."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from tessera.errors import BenchmarkFailed, TesseraError, TimedOut, get_first_line
from tessera.launch.bootstrap import (
    WorkerBootstrap,
    get_control_socket_path,
    get_lifeline_socket_path,
    get_output_socket_path,
    make_private_directory,
)
from tessera.launch.commands import Command, build_commands, build_environment, parse_exit_status
from tessera.launch.config import LaunchConfig
from tessera.launch.fresh import ProcessDied
from tessera.launch.lifeline import open_lifeline
from tessera.launch.output import LAUNCHER_RANK, OutputCollector, format_last_output
from tessera.launch.placement import get_available_cpus, place_workers, read_numa_nodes
from tessera.launch.ranks import make_star_sockets
from tessera.launch.worker import Reply, unpack_reply

if TYPE_CHECKING:
    import psutil

START_LIMIT_SECONDS = 120.0  # seconds to start interpreters and mpiexec on a loaded machine
FAILURE_GRACE_SECONDS = 2.0  # seconds to wait after a first error for a dead rank that may have caused it
LAUNCHER_GRACE_SECONDS = 4.0  # seconds for mpiexec to report how its rank ended
END_GRACE_SECONDS = 10.0  # seconds for workers to end by themselves
KILL_GRACE_SECONDS = 3.0  # seconds between SIGTERM and SIGKILL


class ProcessGroup:
    """The worker processes of one launch. If a rank does not reply because of a failure, all ranks are ended."""

    def __init__(self, config: LaunchConfig) -> None:
        self._config, self._size = config, config.workers
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._controls: dict[int, Connection] = {}
        self._processes: dict[int, psutil.Process] = {}  # by rank, or LAUNCHER_RANK
        self._pidfds: dict[int, int] = {}
        self._directory = make_private_directory()
        self._all_idle = True
        self.alive = True
        try:
            self._lifeline = open_lifeline(get_lifeline_socket_path(self._directory), self._size)
            self._output = OutputCollector(get_output_socket_path(self._directory), self._size, config.tag_output)
            self._start()
        except BaseException:
            self.close(kill=True)
            raise
        # All workers are connected, so the directory is no longer used. A killed parent then leaves no files behind.
        shutil.rmtree(self._directory, ignore_errors=True)

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]:
        """Call a function on every rank, and return the values by rank or raise the first error."""
        try:
            task = pickle.dumps((target, args))
        except Exception as error:
            raise TesseraError(f"the arguments of {target} cannot be pickled: {get_first_line(error)}") from None
        try:
            return self._run(task, limit)
        except BaseException:
            if not self._all_idle:
                self.close(kill=True)
            raise

    def close(self, *, kill: bool) -> None:
        """End the workers and all their children; with `kill`, without waiting for them to end by themselves."""
        if not self.alive:
            return
        self.alive = False
        if not kill:
            self._request_exit()
        try:
            end_process_tree([*self._processes.values()])
        finally:
            for process in self._started.values():
                process.kill()  # no-op if the process has ended
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
        cpus: tuple[tuple[int, ...], ...] = ((),) * self._size
        if config.pin:
            cpus = place_workers(self._size, config.threads, get_available_cpus(), read_numa_nodes())
        bootstrap = WorkerBootstrap(spawn=config.spawn, size=self._size, threads=config.threads, cpus=cpus)
        bootstrap.write(self._directory)
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(get_control_socket_path(self._directory))
            listener.listen(self._size)
            links = make_star_sockets(self._size) if config.spawn != "mpiexec" else []
            for link in (link for row in links for link in row):
                stack.enter_context(link)
            store_fd = None
            if config.spawn == "torchrun":
                store_fd = os.memfd_create("tessera-store")
                stack.callback(os.close, store_fd)
            env = build_environment(config)
            link_fds = [[s.fileno() for s in row] for row in links]
            for command in build_commands(config, self._directory, link_fds, store_fd):
                self._start_process(command, env)
            self._await_connections(listener)

    def _start_process(self, command: Command, env: dict[str, str]) -> None:
        import psutil

        with self._output.open_pipe(command.rank) as written:
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
                raise BenchmarkFailed(f"cannot start a worker: {error.strerror}", got=command.argv[0]) from None
        self._started[command.rank] = process
        self._watch(command.rank, psutil.Process(process.pid))

    def _watch(self, rank: int, process: psutil.Process) -> None:
        self._processes[rank] = process
        self._pidfds[rank] = os.pidfd_open(process.pid)

    def _await_connections(self, listener: socket.socket) -> None:
        """Wait until every rank has connected and sent its rank."""
        import psutil

        deadline = time.monotonic() + START_LIMIT_SECONDS
        while len(self._controls) < self._size:
            ready = wait([listener, *self._pidfds.values()], max(0.0, deadline - time.monotonic()))
            if not ready:
                output = self._quote_output(LAUNCHER_RANK)
                raise BenchmarkFailed(f"the workers did not start within {START_LIMIT_SECONDS:g} s; {output}")
            for rank, fd in self._pidfds.items():
                if fd in ready:
                    raise self._build_death_error(rank)
            if listener in ready:
                accepted, _ = listener.accept()
                control = Connection(accepted.detach())
                try:
                    rank, pid = pickle.loads(control.recv_bytes())
                    if rank not in self._processes:
                        self._watch(rank, psutil.Process(pid))
                except (EOFError, ProcessLookupError, psutil.NoSuchProcess):
                    raise BenchmarkFailed(
                        f"a rank died while it started; {self._quote_output(LAUNCHER_RANK)}"
                    ) from None
                self._controls[rank] = control

    def _run(self, task: bytes, limit: float | None) -> list[Any]:
        replies: dict[int, Reply] = {}
        self._all_idle = False
        for rank, control in self._controls.items():
            try:
                control.send_bytes(task)
            except OSError:
                raise self._build_death_error(rank) from None
        deadline = None if limit is None else time.monotonic() + limit
        failed_at: float | None = None
        dead: list[int] = []
        while len(replies) < self._size and not dead:
            until = min(
                [t for t in (deadline, failed_at and failed_at + FAILURE_GRACE_SECONDS) if t is not None], default=None
            )
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
                        replies[rank] = unpack_reply(rank, source.recv_bytes())
                    except (EOFError, OSError):
                        dead.append(rank)
                        continue
                    if replies[rank].error is not None and failed_at is None:
                        failed_at = time.monotonic()
            dead += [rank for fd, rank in watched.items() if fd in ready and rank not in replies and rank not in dead]
        if dead:
            # If a rank and the launcher ended, report the rank: the launcher ends because a rank ended.
            raise self._build_death_error(next((r for r in dead if r != LAUNCHER_RANK), LAUNCHER_RANK))
        self._all_idle = len(replies) == self._size
        for rank, reply in sorted(replies.items()):
            if isinstance(reply.error, ProcessDied):
                raise BenchmarkFailed(f"{reply.error}; {self._quote_output(rank)}")
            if reply.error is not None:
                raise reply.error
        if not self._all_idle:
            silent = ", ".join(str(r) for r in range(self._size) if r not in replies)
            raise TimedOut(f"no answer within the time limit of {limit:g} s from rank {silent} of {self._size}")
        return [replies[rank].value for rank in range(self._size)]

    def _build_death_error(self, rank: int) -> BenchmarkFailed:
        """Return the error for a rank that ended, after waiting for the exit report of mpiexec."""
        started = self._started.get(rank) or self._started[LAUNCHER_RANK]
        try:
            code: int | None = started.wait(LAUNCHER_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if rank not in self._started:  # a slow launcher may report the end of a rank before it ends itself
            output = "\n".join(self._output.read_tail(LAUNCHER_RANK, wait=1.0))
            code = parse_exit_status(self._processes[rank].pid, code or 0, output)
        who = "the launcher of the ranks" if rank == LAUNCHER_RANK else f"rank {rank} of {self._size}"
        return BenchmarkFailed(f"{who} {_format_exit(code)}; {self._quote_output(rank)}")

    def _quote_output(self, rank: int) -> str:
        """Return the last output of a rank, or of its launcher if the rank wrote nothing, for an error message."""
        words = format_last_output(self._output.read_tail(rank, wait=1.0))
        if not words and rank != LAUNCHER_RANK:
            words = format_last_output(self._output.read_tail(LAUNCHER_RANK)) if LAUNCHER_RANK in self._started else ""
        return f"last output: {words}" if words else "no output"

    def _request_exit(self) -> None:
        for control in self._controls.values():
            with contextlib.suppress(OSError):
                control.send_bytes(pickle.dumps(None))
        deadline, left = time.monotonic() + END_GRACE_SECONDS, set(self._pidfds.values())
        while left and (ready := wait(list(left), max(0.0, deadline - time.monotonic()))):
            left.difference_update(fd for fd in ready if isinstance(fd, int))


def _format_exit(code: int | None) -> str:
    """Describe an exit code (None: unknown).

    >>> _format_exit(-11), _format_exit(3), _format_exit(None)
    ('died of SIGSEGV', 'ended with exit code 3', 'died')
    """
    if code is None:
        return "died"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def end_process_tree(roots: Iterable[psutil.Process]) -> None:
    """End processes, their descendants and all members of their process groups: SIGTERM, then SIGKILL.

    Each of the `roots` leads a process group, so that children whose parent has died are found as well.
    """
    import psutil

    roots = list(roots)
    members = _find_process_members(roots)
    for process in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + KILL_GRACE_SECONDS
    while members and time.monotonic() < deadline:
        psutil.wait_procs(members, timeout=deadline - time.monotonic())
        members = _find_process_members(roots)
    for process in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(members, timeout=KILL_GRACE_SECONDS)


def _find_process_members(roots: list[psutil.Process]) -> list[psutil.Process]:
    import psutil

    members: set[psutil.Process] = set()
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            members.update([root] if root.is_running() else [], root.children(recursive=True))
    groups = {root.pid for root in roots}
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) in groups:
                members.add(process)
    members.discard(psutil.Process())
    return [p for p in members if _is_running(p)]


def _is_running(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
