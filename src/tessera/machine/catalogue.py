"""The machines there are: those shipped as data files, and this host once it is calibrated."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from tessera.errors import TesseraError, did_you_mean
from tessera.machine.hosts import load_host
from tessera.machine.machine import Machine

HOST = "host"


def shipped() -> dict[str, Path]:
    """The data file of each machine that comes with Tessera, by name."""
    folder = Path(str(resources.files("tessera.machine"))) / "data"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def machines(fingerprint: str | None = None) -> dict[str, Machine]:
    """Every machine by name; with the fingerprint of this host, also `host` if it was calibrated.

    >>> sorted(machines())
    ['blackhole-p150', 'grayskull-e150', 'ipu-m2000', 'wormhole-n150']
    """
    found = {name: Machine.read(path) for name, path in shipped().items()}
    host = load_host(fingerprint) if fingerprint else None
    return found if host is None else {HOST: host, **found}


def load_machine(name_or_path: str, fingerprint: str | None = None) -> Machine:
    """A machine by name or from a TOML file; `host` is this one, which its fingerprint finds.

    >>> load_machine("wormhole-n150").workers, load_machine("wormhole_n150").name
    (Mesh(8x8), 'wormhole-n150')
    """
    files = shipped()
    name = name_or_path.replace("_", "-")  # programs write wormhole_n150
    if name in files:
        return Machine.read(files[name])
    if name_or_path == HOST:
        host = load_host(fingerprint) if fingerprint else None
        if host is None:
            raise TesseraError("this host is not calibrated", do="run `tessera doctor --calibrate`")
        return host
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return Machine.read(path)
    names = [HOST, *files]
    raise TesseraError(
        "unknown machine",
        got=name_or_path,
        allowed=[*names, "a .toml file"],
        do=did_you_mean(name_or_path, names),
    )
