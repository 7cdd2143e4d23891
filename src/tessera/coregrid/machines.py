"""Look up the machine of a device or a plan."""

from __future__ import annotations

from tessera.machine import load_machine
from tessera.machine.catalogue import HOST_MACHINE
from tessera.machine.machine import Machine
from tessera.measure.environment import compute_host_fingerprint, describe_environment


def find_machine(name_or_path: str) -> Machine:
    """Load a machine description by name or from a TOML file. `host` is this computer, if it was calibrated."""
    fingerprint = compute_host_fingerprint(describe_environment()) if name_or_path == HOST_MACHINE else None
    return load_machine(name_or_path, fingerprint)
