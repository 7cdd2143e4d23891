"""Calibration of this host from the command line: measure its rates, refuse those of a busy machine, store them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.cli.progress import StatusLine
from tessera.errors import TesseraError

if TYPE_CHECKING:
    from tessera.launch.config import SpawnMethod
    from tessera.machine import Machine

LINK_LAUNCHERS: tuple[SpawnMethod, ...] = ("mpiexec", "torchrun")
QUICK_EFFORT = 0.25  # factor on the measuring time of a quick calibration


class BusyMachine(TesseraError):
    """The error for a calibration that other programs disturbed."""


def calibrate_and_store(
    directory: Path,
    launchers: Sequence[SpawnMethod],
    say: Callable[[str], None],
    *,
    required: bool = False,
    effort: float = 1.0,
    force: bool = False,
) -> Machine:
    """Measure the rates of this host and store them.

    Raises:
        BusyMachine: other programs disturbed the measurement; with `force`, the rates are stored nevertheless.
    """
    from tessera.machine.calibrate import STORAGE_FILE_BYTES, calibrate_host
    from tessera.spatial.scaling.overheads import measure_transfers_and_overheads

    transfers, overheads = measure_transfers_and_overheads(launchers, required=required, say=say)
    size = int(STORAGE_FILE_BYTES * min(1.0, effort))
    machine = calibrate_host(directory, say, transfers, overheads, storage_bytes=size, effort=effort)
    store_rates(machine, force=force)
    return machine


def store_rates(machine: Machine, *, device: str = "", force: bool = False) -> None:
    """Store the rates of this host, or of an accelerator with this label.

    Raises:
        BusyMachine: other programs disturbed the measurement; with `force`, the rates are stored nevertheless.
    """
    from tessera.machine.catalogue import save_host
    from tessera.measure.environment import compute_host_fingerprint, describe_environment

    if machine.notes and not force:
        raise BusyMachine(
            "the machine was busy, and its rates were not stored",
            got=machine.notes[0].partition(";")[0],
            do="calibrate again when it is idle, or store the rates anyway with --force",
        )
    save_host(machine, compute_host_fingerprint(describe_environment(device=device)))


def calibrate_if_missing() -> None:
    """Calibrate this host quickly unless its rates are stored; on a busy machine, print why it stays uncalibrated."""
    from tessera.machine.catalogue import load_host
    from tessera.measure.environment import compute_host_fingerprint, describe_environment

    if load_host(compute_host_fingerprint(describe_environment())) is not None:
        return
    print("calibrating this machine (once)", file=sys.stderr)
    try:
        with StatusLine(quiet=True) as say:
            calibrate_and_store(Path(), LINK_LAUNCHERS, say, effort=QUICK_EFFORT)
    except BusyMachine as error:
        print(f"not calibrated, so no predictions: {error}", file=sys.stderr)
