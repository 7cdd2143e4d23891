"""The command lines and the environment of worker processes, and the list of available launchers."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tessera
from tessera.errors import MissingExtra, TesseraError, get_first_line
from tessera.launch.bootstrap import get_lifeline_socket_path
from tessera.launch.config import LaunchConfig
from tessera.launch.job import WORKER_VARIABLE, strip_job_variables
from tessera.launch.output import LAUNCHER_RANK
from tessera.measure.allocator import get_allocator_env

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SERVE_MODULE = "tessera.launch.serve"
# Program that runs a module of this package in another interpreter, without this interpreter's libraries.
FOREIGN_PYTHON_PROGRAM = """\
import importlib.util, runpy, sys
_, path, module, *sys.argv[1:] = sys.argv
spec = importlib.util.spec_from_file_location("tessera", path, submodule_search_locations=[path.rpartition("/")[0]])
sys.modules["tessera"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["tessera"])
runpy.run_module(module, run_name="__main__")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command line of one process to start: a rank, or the launcher of all ranks (rank LAUNCHER_RANK)."""

    rank: int
    argv: tuple[str, ...]
    fds: tuple[int, ...] = ()


def build_commands(
    config: LaunchConfig, directory: Path, links: Sequence[Sequence[int]], store_fd: int | None
) -> list[Command]:
    """Return the commands of a launch.

    `links` are the file descriptors of the sockets that each rank inherits, and `store_fd` is the file through which
    ranks of torch.distributed find each other.
    """
    serve = (*_make_module_args(config, SERVE_MODULE), str(directory))
    if config.spawn != "mpiexec":
        store = () if store_fd is None else (store_fd,)
        return [
            Command(rank=rank, argv=(*serve, str(rank), ",".join(map(str, fds)), *map(str, store)), fds=(*fds, *store))
            for rank, fds in enumerate(links)
        ]
    launcher = (*_make_mpiexec_args(config), config.python)
    attached = (*_make_module_args(config, "tessera.launch.lifeline"), get_lifeline_socket_path(directory))
    return [Command(rank=LAUNCHER_RANK, argv=(*attached, *launcher, "-m", SERVE_MODULE, str(directory)))]


def _make_module_args(config: LaunchConfig, module: str) -> tuple[str, ...]:
    """Return the beginning of a command line that runs a module of this package."""
    if config.python == sys.executable:
        return (config.python, "-m", module)
    return (config.python, "-c", FOREIGN_PYTHON_PROGRAM, tessera.__file__, module)


def _make_mpiexec_args(config: LaunchConfig) -> tuple[str, ...]:
    if config.python == sys.executable and importlib.util.find_spec("mpi4py") is None:
        raise MissingExtra("mpi4py", "mpi")
    path = find_mpiexec(config.python)
    if path is None:
        raise MissingExtra("mpiexec", "mpi")
    kind = identify_mpi(path)
    options: tuple[str, ...] = ()
    if kind == "Open MPI":
        # Shared memory only: all ranks are on this machine, and the detection of networks takes a second.
        options = (
            "--map-by",
            ":OVERSUBSCRIBE",
            "--bind-to",
            "none",
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "self,sm",
        )
        options += ("--mca", "osc", "^ucx", *(["--allow-run-as-root"] if os.geteuid() == 0 else []))
    elif kind == "MPICH":
        options = ("-launcher", "fork", "-bind-to", "none")
    return (path, *options, "-n", str(config.workers))


def find_mpiexec(python: str) -> str | None:
    """Return the path of mpiexec: in the directory of an interpreter, where pip installs it, otherwise in PATH."""
    beside = Path(python).parent / "mpiexec"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


@cache
def identify_mpi(path: str) -> str:
    """Return the MPI implementation of an mpiexec: `Open MPI`, `MPICH` or `another MPI`."""
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TesseraError(f"cannot run mpiexec: {get_first_line(error)}", got=path) from None
    if "Open MPI" in version or "OpenRTE" in version:
        return "Open MPI"
    return "MPICH" if "HYDRA" in version else "another MPI"


def build_environment(config: LaunchConfig) -> dict[str, str]:
    """Return the workers' environment: a copy without job variables, and with settings of threads and allocator."""
    env = {k: v for k, v in strip_job_variables(os.environ).items() if not k.startswith("MALLOC_")}
    env |= {WORKER_VARIABLE: config.spawn} | dict.fromkeys(THREAD_VARIABLES, str(config.threads))
    env |= get_allocator_env(config.allocator)
    env["PYTHONSAFEPATH"] = "1"  # a `queue.py` in the current directory must not replace the standard module
    if config.spawn == "torchrun":
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if config.python == sys.executable:
        env["PYTHONPATH"] = os.pathsep.join(_get_import_path())
    return env | dict(config.env)


def _get_import_path() -> list[str]:
    """Return the import path of this process without the entries that every interpreter adds itself."""
    standard = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    entries = [entry or os.getcwd() for entry in sys.path]
    return [e for e in dict.fromkeys(entries) if not e.startswith(standard) and not e.endswith(".zip")]


def parse_exit_status(pid: int, returncode: int, output: str) -> int | None:
    """Return the exit code of a rank from the return code and output of its launcher.

    The result is the negative signal number if a signal ended the rank, and None if it is unknown.

    >>> parse_exit_status(7, 1, "exitcode  : -9 (pid: 7)  (SIGKILL)")
    -9
    >>> parse_exit_status(7, 1, "traceback : Signal 9 (SIGKILL) received by PID 7")
    -9
    >>> parse_exit_status(7, 137, "process rank 1 with PID 7 on node a exited on signal 9 (Killed).")
    -9
    >>> parse_exit_status(7, 9, "= PID 7 RUNNING AT a\\n= EXIT CODE: 9\\nTHE EXIT STRING: Killed (signal 9)")
    -9
    >>> parse_exit_status(7, 3, "Exit code: 3")
    3
    """
    if match := re.search(rf"exitcode\s*: (-?\d+) \(pid: {pid}\)", output):
        return int(match[1])
    if match := re.search(rf"Signal (\d+) \(\w+\) received by PID {pid}\b", output):
        return -int(match[1])
    if match := re.search(r"signal (\d+)", output):
        return -int(match[1])
    if match := re.search(r"exit code:\s*(\d+)", output, re.IGNORECASE):
        return int(match[1])
    return 128 - returncode if returncode > 128 else None


class LauncherStatus(NamedTuple):
    """A launcher, whether it is available here, and its description or the reason why it is not available."""

    name: str
    usable: bool
    description: str


def list_launchers() -> list[LauncherStatus]:
    """List the launchers of this interpreter, with the reason why a launcher is not available."""
    statuses = [
        LauncherStatus("inline", True, "one worker, in the calling process"),
        LauncherStatus("processes", True, "processes on this machine, each pinned to its cores"),
    ]
    if importlib.util.find_spec("torch") is None:
        statuses.append(LauncherStatus("torchrun", False, "torch is not installed; pip install torch"))
    else:
        statuses.append(LauncherStatus("torchrun", True, "ranks of torch.distributed on this machine, over gloo"))
    mpiexec = find_mpiexec(sys.executable)
    if importlib.util.find_spec("mpi4py") is None:
        statuses.append(LauncherStatus("mpiexec", False, str(MissingExtra("mpi4py", "mpi"))))
    elif mpiexec is None:
        statuses.append(LauncherStatus("mpiexec", False, str(MissingExtra("mpiexec", "mpi"))))
    else:
        statuses.append(LauncherStatus("mpiexec", True, f"ranks through {mpiexec} ({identify_mpi(mpiexec)})"))
    return statuses
