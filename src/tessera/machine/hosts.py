"""Calibrated hosts, one file per fingerprint: a home shared by several machines keeps them apart."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tessera.errors import TesseraError
from tessera.machine.machine import Machine
from tessera.machine.toml import read_toml, write_toml


def data_home() -> Path:
    """Where Tessera keeps what outlives a run: `$TESSERA_HOME`, else `$XDG_DATA_HOME/tessera`."""
    if home := os.environ.get("TESSERA_HOME"):
        return Path(home)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "tessera"


def host_path(fingerprint: str) -> Path:
    """The file of a host; a fingerprint may hold any character, a file name may not."""
    if not fingerprint:
        raise TesseraError("a host is kept by its fingerprint", got=fingerprint)
    return data_home() / "hosts" / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:24]}.toml"


def save_host(machine: Machine, fingerprint: str) -> Path:
    """Keep a calibrated host, replacing the one kept before; gives the file."""
    path = host_path(fingerprint)
    write_toml(path, {"fingerprint": fingerprint, "machine": machine.to_dict()})
    return path


def load_host(fingerprint: str) -> Machine | None:
    """The calibrated host of this fingerprint, or None if it was never calibrated."""
    path = host_path(fingerprint)
    if not path.exists():
        return None
    try:
        kept = read_toml(path)
        if kept.get("fingerprint") != fingerprint:
            raise TesseraError(f"{path} is of another host", got=kept.get("fingerprint"))
        return Machine.from_dict(kept.get("machine", {}), str(path))
    except TesseraError as error:
        raise TesseraError(f"{error}; calibrate again with `tessera doctor --calibrate`") from None
