"""The machine of a device or a plan, by its name."""

from __future__ import annotations

from tessera.machine import load_machine
from tessera.machine.catalogue import HOST
from tessera.machine.machine import Machine
from tessera.measure.environment import environment, host_fingerprint


def machine_of(name_or_path: str) -> Machine:
    """A machine by its name, or from a TOML file; `host` is this one, if it was calibrated."""
    fingerprint = host_fingerprint(environment()) if name_or_path == HOST else None
    return load_machine(name_or_path, fingerprint)
