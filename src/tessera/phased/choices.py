"""What a user can choose from, and sizes as users write them. Imports no torch."""

from __future__ import annotations

import re

from tessera.errors import TesseraError, did_you_mean

SCHEDULES = {
    "sequential": "load a phase, then compute it: the baseline",
    "overlapped": "one device; the next phases are loaded in the background",
    "phased": "the devices take turns: one computes while the other loads, then they change roles",
    "data-parallel": "all devices compute the same phase on their share of the batch; one stream feeds them",
    "sharded": "phase i stays on device i modulo the devices; nothing is streamed",
    "resident": "everything stays in the memory of one device: the limit",
}
ONE_DEVICE = ("sequential", "overlapped", "resident")
HOLD_ALL = ("sharded", "resident")  # of which no budget is kept: all weights are in memory
ON_PROCESSES = ("phased", "sharded")  # whose devices may be processes
STORES = {
    "disk": "a safetensors file",
    "host": "host memory",
    "mapped": "a safetensors file, mapped read-only and computed from where it lies in the page cache",
}
DTYPES = ("float16", "bfloat16", "float32", "float64")
WORKERS = {
    "threads": "devices are pinned threads of this process",
    "processes": "devices are pinned processes of their own (phased and sharded)",
}

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def choose(schedule: str | None, devices: int | None) -> tuple[str, int]:
    """The schedule and the number of devices, where a user gave both, one or none of them.

    >>> choose(None, None), choose(None, 2), choose("sharded", None), choose("phased", 1)
    (('overlapped', 1), ('phased', 2), ('sharded', 2), ('phased', 1))
    """
    if schedule is None:
        schedule = "overlapped" if devices is None or devices == 1 else "phased"
    if schedule not in SCHEDULES:
        raise TesseraError("unknown schedule", got=schedule, allowed=SCHEDULES, do=did_you_mean(schedule, SCHEDULES))
    devices = (1 if schedule in ONE_DEVICE else 2) if devices is None else devices
    if devices < 1:
        raise TesseraError("a schedule needs devices", got=devices, allowed="1 or more")
    if schedule in ONE_DEVICE and devices > 1:
        several = [name for name in SCHEDULES if name not in ONE_DEVICE]
        raise TesseraError(f"{schedule} runs on one device", got=devices, do=f"use {', '.join(several)}")
    return schedule, devices


def compute_together(schedule: str, batches: int) -> bool:
    """Whether the devices of a schedule compute at the same time, or one at a time.

    >>> compute_together("phased", 8), compute_together("sharded", 8), compute_together("sharded", 1)
    (False, True, False)
    """
    return schedule == "data-parallel" or (schedule == "sharded" and batches > 1)


def parse_bytes(size: str | int) -> int:
    """A size in bytes, as a number or as users write it.

    >>> parse_bytes("256MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (256000000, 1610612736, 4096)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if not found or found[2].upper() not in _UNITS or float(found[1]) * _UNITS[found[2].upper()] < 1:
        raise TesseraError("not a size in bytes", got=size, allowed="a positive number with B, KB, MB, GB, MiB or GiB")
    return int(float(found[1]) * _UNITS[found[2].upper()])
