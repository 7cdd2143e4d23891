"""Schedules and weight stores that a user can choose, and parsing of sizes. Imports no torch."""

from __future__ import annotations

import re

from tessera.errors import TesseraError, suggest_similar
from tessera.phased.traits import WEIGHT_DTYPES as WEIGHT_DTYPES
from tessera.phased.traits import ScheduleTraits, WeightStoreTraits

# Networks with inputs of their own, by the name that suites and --model use.
NETWORKS = {"language-model": "tessera.phased.language_model:build_language_model"}
CONFIG_NAME = "config.json"  # of a Hugging Face folder
SCHEDULES = {
    traits.name: traits
    for traits in (
        ScheduleTraits(
            name="sequential",
            summary="load a phase, then compute it: the baseline",
            buffers=(1, 1),
            keeps_phases=False,
            is_baseline=True,
        ),
        ScheduleTraits(
            name="overlapped",
            summary="one device; the next phases are loaded in the background",
            buffers=(2, 3),
            overlaps_loads=True,
        ),
        ScheduleTraits(
            name="phased",
            summary="the devices alternate: one computes a phase while another loads the next phase",
            several_devices=True,
            buffers=(1, 1),
            buffers_per_device=True,
            overlaps_loads=True,
        ),
        ScheduleTraits(
            name="data-parallel",
            summary="all devices compute the same phase on their share of the batch; one stream loads the weights",
            several_devices=True,
            buffers=(2, 3),
            overlaps_loads=True,
            computes_together="always",
        ),
        ScheduleTraits(
            name="sharded",
            summary="phase i stays on device i modulo the number of devices; no weights are streamed",
            several_devices=True,
            computes_together="several batches",
        ),
        ScheduleTraits(
            name="resident",
            summary="all weights stay in the memory of one device: the upper limit",
        ),
    )
}
DEFAULT_SCHEDULES = ("overlapped", "phased")  # default for one device, default for several devices

STORES = {
    traits.name: traits
    for traits in (
        WeightStoreTraits(
            name="disk",
            summary="a safetensors file",
            storage="warm disk",
            link="streaming_warm",
            cold_link="streaming",
            cold_storage="cold disk",
        ),
        WeightStoreTraits(name="host", summary="host memory", storage="host memory", link="copy", in_host_memory=True),
        WeightStoreTraits(
            name="mapped",
            summary="a safetensors file, mapped read-only and used directly from the page cache",
            storage="warm disk, mapped",
            mapped=True,
        ),
    )
}

_BYTES_PER_UNIT = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def choose_schedule(schedule: str | None, devices: int | None) -> tuple[ScheduleTraits, int]:
    """Return the schedule and the number of devices; an argument of None selects the default.

    >>> for schedule, devices in ((None, None), (None, 2), ("sharded", None), ("phased", 1)):
    ...     traits, devices = choose_schedule(schedule, devices)
    ...     print(traits.name, devices)
    overlapped 1
    phased 2
    sharded 2
    phased 1
    """
    if schedule is None:
        schedule = DEFAULT_SCHEDULES[devices is not None and devices != 1]
    if schedule not in SCHEDULES:
        raise TesseraError("unknown schedule", got=schedule, allowed=SCHEDULES, do=suggest_similar(schedule, SCHEDULES))
    traits = SCHEDULES[schedule]
    devices = traits.default_devices if devices is None else devices
    if devices < 1:
        raise TesseraError("invalid number of devices", got=devices, allowed="1 or more")
    if devices > 1 and not traits.several_devices:
        several = [name for name, other in SCHEDULES.items() if other.several_devices]
        raise TesseraError(
            f"schedule {schedule!r} runs on one device",
            got=f"{devices} devices",
            do=f"use schedule {' or '.join(several)}",
        )
    return traits, devices


def get_store_traits(name: str) -> WeightStoreTraits:
    """Return a weight store by its name."""
    if name not in STORES:
        raise TesseraError("unknown weight store", got=name, allowed=STORES)
    return STORES[name]


def normalize_size(text: str) -> str:
    """Return a size in bytes in its usual spelling, so that equal sizes are equal cases.

    >>> normalize_size("1 gb"), normalize_size("1GB"), normalize_size("1.50 mib"), normalize_size("auto")
    ('1GB', '1GB', '1.5MiB', 'auto')
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if not match or match[2].upper() not in _BYTES_PER_UNIT:
        return text
    unit = match[2].upper()
    return f"{float(match[1]):.15g}{unit[0]}i{unit[2:]}" if unit[1:2] == "I" else f"{float(match[1]):.15g}{unit}"


def parse_bytes(size: str | int) -> int:
    """Return a size in bytes from a number, or from text with a decimal (MB) or a binary (MiB) unit.

    >>> parse_bytes("256MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (256000000, 1610612736, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if not match or match[2].upper() not in _BYTES_PER_UNIT or float(match[1]) * _BYTES_PER_UNIT[match[2].upper()] < 1:
        raise TesseraError(
            "invalid size in bytes", got=size, allowed="a positive number with the unit B, KB, MB, GB, KiB, MiB or GiB"
        )
    return int(float(match[1]) * _BYTES_PER_UNIT[match[2].upper()])
