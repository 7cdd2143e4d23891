"""The ways to run a network in phases, one file each."""

from __future__ import annotations

from tessera.phased.schedules.data_parallel import DataParallel
from tessera.phased.schedules.overlapped import Overlapped
from tessera.phased.schedules.phased import Phased
from tessera.phased.schedules.resident import Resident
from tessera.phased.schedules.schedule import Schedule, Setup
from tessera.phased.schedules.sequential import Sequential
from tessera.phased.schedules.sharded import Sharded

_SCHEDULES: dict[str, type[Schedule]] = {
    "sequential": Sequential,
    "overlapped": Overlapped,
    "phased": Phased,
    "data-parallel": DataParallel,
    "sharded": Sharded,
    "resident": Resident,
}


def open_schedule(name: str, setup: Setup) -> Schedule:
    """Start a schedule by its name."""
    made: Schedule = _SCHEDULES[name](setup)  # type: ignore[call-arg]
    return made
