"""Two simulated hosts for tests: two network namespaces of this machine, with a slow link between them.

The link is a pair of virtual devices with `tc netem`. If the kernel has no netem, a process forwards the packets
(wire.py). Namespaces, devices and processes are always removed again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

ADDRESSES = ("10.213.0.1", "10.213.0.2")
DEVICE = "wire0"
PORT = 29533
NUMBERS = count(1)

ECHO = """
import socket, sys
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind((sys.argv[1], 7007))
print("ready", flush=True)
while True:
    here.sendto(*here.recvfrom(64))
"""
CALL = """
import socket, statistics, sys, time
there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
there.connect((sys.argv[1], 7007))
there.settimeout(5)
took = []
for _ in range(50):
    start = time.perf_counter()
    there.send(b"hello")
    there.recv(64)
    took.append(time.perf_counter() - start)
print(statistics.median(took))
"""


class NotAllowed(Exception):
    """Raised, with the reason, if this machine does not allow creating the hosts."""


class TwoHosts:
    """Context manager with two simulated hosts: `hosts.torchrun([...])` runs a module with ranks on both hosts."""

    def __init__(self, *, delay: float = 200e-6, rate: float = 1e9) -> None:
        self.delay, self.rate = delay, rate
        number = next(NUMBERS)
        self.names = tuple(f"tessera-{os.getpid()}-{number}{letter}" for letter in "ab")
        self.how = ""
        self._wire: subprocess.Popen[str] | None = None
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> TwoHosts:
        for tool in ("ip", "taskset"):
            if shutil.which(tool) is None:
                raise NotAllowed(f"there is no `{tool}` here")
        for name in _find_abandoned():
            _remove(name)
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for name in self.names:
            _remove(name)
        for process in self._running:
            process.wait()
        if self._wire is not None:
            self._wire.communicate("")

    def torchrun(
        self, words: Sequence[str], *, timeout: float, ranks_per_host: int = 1
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run `python -m WORDS` on both hosts, each pinned to a core; return the ended processes by host."""
        cores = sorted(os.sched_getaffinity(0))
        self._running = []
        for rank, name in enumerate(self.names):
            launcher = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nnodes=2",
                f"--nproc-per-node={ranks_per_host}",
            ]
            place = [f"--node-rank={rank}", f"--master-addr={ADDRESSES[0]}", f"--master-port={PORT}"]
            pinned = ["taskset", "-c", str(cores[rank % len(cores)])]
            argv = [
                "ip",
                "netns",
                "exec",
                name,
                *pinned,
                *launcher,
                *place,
                f"--local-addr={ADDRESSES[rank]}",
                "-m",
                *words,
            ]
            env = os.environ | {"GLOO_SOCKET_IFNAME": DEVICE, "OMP_NUM_THREADS": "1"}
            self._running.append(
                subprocess.Popen(
                    argv,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            )
        with ThreadPoolExecutor() as pool:  # read both outputs at once: a full pipe would block its process
            outputs = list(pool.map(lambda process: process.communicate(timeout=timeout), self._running))
        ended = zip(self._running, outputs, strict=True)
        return [subprocess.CompletedProcess(p.args, p.returncode, out, err) for p, (out, err) in ended]

    def measure_round_trip(self) -> float:
        """Return the median round-trip time of a small packet in seconds."""
        python = (sys.executable, "-c")
        echo = subprocess.Popen(
            ["ip", "netns", "exec", self.names[1], *python, ECHO, ADDRESSES[1]], stdout=subprocess.PIPE, text=True
        )
        try:
            assert echo.stdout is not None
            echo.stdout.readline()
            return float(_do("ip", "netns", "exec", self.names[0], *python, CALL, ADDRESSES[1]))
        finally:
            echo.kill()
            echo.communicate()

    def _make(self) -> None:
        for name in self.names:
            _do("ip", "netns", "add", name)
        self.how = self._make_netem_link() or self._start_forwarder()
        for name, address in zip(self.names, ADDRESSES, strict=True):
            _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", DEVICE)
            _do("ip", "-n", name, "link", "set", DEVICE, "up")
            _do("ip", "-n", name, "link", "set", "lo", "up")

    def _make_netem_link(self) -> str:
        """Create a pair of devices with delay and rate set by netem; return "" if the kernel has no netem."""
        first, second = self.names
        try:
            _do("ip", "link", "add", DEVICE, "netns", first, "type", "veth", "peer", "name", DEVICE, "netns", second)
            for name in self.names:
                slow = ("delay", f"{self.delay * 1e6:.0f}us", "rate", f"{self.rate:.0f}bit", "limit", "10000")
                _do("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "netem", *slow)
        except NotAllowed:
            subprocess.run(["ip", "-n", first, "link", "del", DEVICE], capture_output=True, check=False)
            return ""
        return "tc netem"

    def _start_forwarder(self) -> str:
        """Start a process that forwards the packets."""
        script, figures = Path(__file__).with_name("wire.py"), (str(self.delay), str(self.rate))
        self._wire = subprocess.Popen(
            [sys.executable, str(script), *self.names, DEVICE, *figures],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._wire.stdout is not None
        if self._wire.stdout.readline() != "ready\n":
            _, why = self._wire.communicate(timeout=10)
            raise NotAllowed(f"neither netem nor a tun device: {why.strip().splitlines()[-1]}")
        return "a process that forwards the packets, as this kernel has no netem"


def _remove(name: str) -> None:
    """Remove a namespace and kill the processes in it, which were all started by these tests."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
    for pid in map(int, pids.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _find_abandoned() -> list[str]:
    """Return the namespaces left by test processes that were killed before their cleanup."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    namespaces = re.findall(r"^(tessera-(\d+)-\d+[ab])\b", listed, re.MULTILINE)
    return [name for name, owner in namespaces if not Path(f"/proc/{owner}").exists()]


def _do(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAllowed(f"{argv[0]}: {error}") from None
    if done.returncode:
        raise NotAllowed(
            f"`{' '.join(argv)}`: {(done.stderr or done.stdout).strip() or f'exit code {done.returncode}'}"
        )
    return done.stdout
