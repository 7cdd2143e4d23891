"""The command lines and the environment with which workers are started, and which launchers there are."""

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
from tessera.errors import MissingExtra, TesseraError
from tessera.launch.config import LaunchConfig
from tessera.launch.job import WORKER_MARK, outside_job
from tessera.launch.output import LAUNCHER
from tessera.launch.plan import lifeline_socket
from tessera.measure.allocator import allocator_env

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SERVE = "tessera.launch.serve"
# Another interpreter gets this very package, and nothing else of this one's: its own libraries are what is measured.
REACH = """\
import importlib.util, runpy, sys
_, path, module, *sys.argv[1:] = sys.argv
spec = importlib.util.spec_from_file_location("tessera", path, submodule_search_locations=[path.rpartition("/")[0]])
sys.modules["tessera"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["tessera"])
runpy.run_module(module, run_name="__main__")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to start: a rank, or a LAUNCHER that starts them all."""

    rank: int
    argv: tuple[str, ...]
    fds: tuple[int, ...] = ()


def commands(config: LaunchConfig, directory: Path, links: Sequence[Sequence[int]]) -> list[Command]:
    """What to start for a launch; `links` are the sockets that each process inherits to reach the others."""
    serve = (*_module(config, SERVE), str(directory))
    if config.spawn == "processes":
        return [
            Command(rank=rank, argv=(*serve, str(rank), ",".join(map(str, fds))), fds=tuple(fds))
            for rank, fds in enumerate(links)
        ]
    launcher = _torchrun(config, directory) if config.spawn == "torchrun" else (*_mpiexec(config), config.python)
    tied = (*_module(config, "tessera.launch.lifeline"), lifeline_socket(directory))
    return [Command(rank=LAUNCHER, argv=(*tied, *launcher, "-m", SERVE, str(directory)))]


def _module(config: LaunchConfig, module: str) -> tuple[str, ...]:
    """The start of a command line that runs a module of this package."""
    if config.python == sys.executable:
        return (config.python, "-m", module)
    return (config.python, "-c", REACH, tessera.__file__, module)


def _torchrun(config: LaunchConfig, directory: Path) -> tuple[str, ...]:
    # The agent looks after its ranks by polling: once a second is enough, since a death is seen here first.
    options = ["--standalone", "--local-addr=127.0.0.1", "--monitor-interval=1"]
    options.append(f"--log-dir={directory}")  # it makes a directory in any case: this one is removed with the launch
    return (config.python, "-m", "torch.distributed.run", *options, f"--nproc-per-node={config.workers}")


def _mpiexec(config: LaunchConfig) -> tuple[str, ...]:
    if config.python == sys.executable and importlib.util.find_spec("mpi4py") is None:
        raise MissingExtra("mpi4py", "mpi")
    path = find_mpiexec(config.python)
    if path is None:
        raise MissingExtra("mpiexec", "mpi")
    kind = mpi_kind(path)
    options: tuple[str, ...] = ()
    if kind == "Open MPI":
        # Shared memory alone: all ranks are on this machine, and looking for networks takes a second.
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
    """The mpiexec beside an interpreter, where pip's wheels put it, or else the one in PATH."""
    beside = Path(python).parent / "mpiexec"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


@cache
def mpi_kind(path: str) -> str:
    """Whose mpiexec this is: Open MPI, MPICH, or another."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TesseraError("mpiexec does not start", got=path, do=str(error)) from None
    if "Open MPI" in said or "OpenRTE" in said:
        return "Open MPI"
    return "MPICH" if "HYDRA" in said else "another MPI"


def environment(config: LaunchConfig) -> dict[str, str]:
    """The environment of the workers: this one, outside of any job, with threads and allocator set."""
    env = {k: v for k, v in outside_job(os.environ).items() if not k.startswith("MALLOC_")}
    env |= {WORKER_MARK: config.spawn} | dict.fromkeys(THREAD_VARIABLES, str(config.threads))
    env |= allocator_env(config.allocator)
    env["PYTHONSAFEPATH"] = "1"  # a `queue.py` where the user happens to be is not the library's
    if config.spawn == "torchrun":
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if config.python == sys.executable:
        env["PYTHONPATH"] = os.pathsep.join(_own_path())
    return env | dict(config.env)


def _own_path() -> list[str]:
    """The import path of this process, without what the interpreter adds by itself."""
    given = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    entries = [entry or os.getcwd() for entry in sys.path]
    return [e for e in dict.fromkeys(entries) if not e.startswith(given) and not e.endswith(".zip")]


def exit_status(pid: int, returncode: int, said: str) -> int | None:
    """How a rank ended, from what its launcher returned and said: negative for a signal, None if unknown.

    >>> exit_status(7, 1, "exitcode  : -9 (pid: 7)  (SIGKILL)")
    -9
    >>> exit_status(7, 137, "process rank 1 with PID 7 on node a exited on signal 9 (Killed).")
    -9
    >>> exit_status(7, 9, "= PID 7 RUNNING AT a\\n= EXIT CODE: 9\\nTHE EXIT STRING: Killed (signal 9)")
    -9
    >>> exit_status(7, 3, "Exit code: 3")
    3
    """
    if found := re.search(rf"exitcode\s*: (-?\d+) \(pid: {pid}\)", said):
        return int(found[1])
    if found := re.search(r"signal (\d+)", said):
        return -int(found[1])
    if found := re.search(r"exit code:\s*(\d+)", said, re.IGNORECASE):
        return int(found[1])
    return 128 - returncode if returncode > 128 else None


class Launcher(NamedTuple):
    """A way to launch, whether it can be used here, and how, or why not."""

    name: str
    usable: bool
    how: str


def launchers() -> list[Launcher]:
    """The ways to launch workers from this interpreter."""
    found = [
        Launcher("inline", True, "one worker, in the calling process"),
        Launcher("processes", True, "processes on this machine, each pinned to its cores"),
    ]
    if importlib.util.find_spec("torch") is None:
        found.append(Launcher("torchrun", False, "torch is not installed; pip install torch"))
    else:
        found.append(Launcher("torchrun", True, "ranks through torch.distributed.run, over gloo"))
    mpiexec = find_mpiexec(sys.executable)
    if importlib.util.find_spec("mpi4py") is None:
        found.append(Launcher("mpiexec", False, str(MissingExtra("mpi4py", "mpi"))))
    elif mpiexec is None:
        found.append(Launcher("mpiexec", False, str(MissingExtra("mpiexec", "mpi"))))
    else:
        found.append(Launcher("mpiexec", True, f"ranks through {mpiexec} ({mpi_kind(mpiexec)})"))
    return found
