"""Find machine descriptions: shipped data files, TOML files of the user, and calibrated hosts.

Each calibrated host has its own file, named after its fingerprint, so several hosts can share a home directory.
"""

from __future__ import annotations

import hashlib
import os
from importlib import resources
from pathlib import Path

from tessera.errors import TesseraError, suggest_similar
from tessera.machine.machine import Machine
from tessera.machine.toml import read_toml, write_toml

HOST_MACHINE = "host"


def find_shipped_files() -> dict[str, Path]:
    """Return the data file of each shipped machine by name."""
    folder = Path(str(resources.files("tessera.machine"))) / "data"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_machines(fingerprint: str | None = None) -> dict[str, Machine]:
    """Load every shipped machine by name; with the fingerprint of this host, also `host` if it is calibrated.

    >>> sorted(load_machines())
    ['a100-pcie-80gb', 'blackhole-p150', 'grayskull-e150', 'ipu-m2000', 'wormhole-n150']
    """
    machines = {name: Machine.read_file(path) for name, path in find_shipped_files().items()}
    host = load_host(fingerprint) if fingerprint else None
    return machines if host is None else {HOST_MACHINE: host, **machines}


def expand_machine_name(text: str) -> str:
    """Return the full name of a shipped machine, given with underscores or as a unique part; other text unchanged.

    >>> expand_machine_name("n150"), expand_machine_name("wormhole_n150"), expand_machine_name("mine.toml")
    ('wormhole-n150', 'wormhole-n150', 'mine.toml')
    """
    files, name = find_shipped_files(), text.replace("_", "-").lower()
    matches = [known for known in files if known == name] or [known for known in files if name in known.split("-")]
    return matches[0] if len(matches) == 1 else text


def load_machine(name_or_path: str, fingerprint: str | None = None) -> Machine:
    """Load a machine by name or from a TOML file; the name `host` is the calibrated host with this fingerprint.

    >>> load_machine("wormhole-n150").workers, load_machine("wormhole_n150").name, load_machine("n150").name
    (Mesh(8x8), 'wormhole-n150', 'wormhole-n150')
    """
    files = find_shipped_files()
    name = expand_machine_name(name_or_path)
    if name in files:
        return Machine.read_file(files[name])
    if name_or_path == HOST_MACHINE:
        host = load_host(fingerprint) if fingerprint else None
        if host is None:
            raise TesseraError("this host is not calibrated", do="run `tessera doctor --calibrate`")
        return host
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.exists():
        return Machine.read_file(path)
    names = [HOST_MACHINE, *files]
    raise TesseraError(
        "unknown machine",
        got=name_or_path,
        allowed=[*names, "a .toml file"],
        do=suggest_similar(name_or_path, names),
    )


def get_data_home() -> Path:
    """Return the folder of persistent data: `$TESSERA_HOME`, else `$XDG_DATA_HOME/tessera`."""
    if home := os.environ.get("TESSERA_HOME"):
        return Path(home)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "tessera"


def get_host_path(fingerprint: str) -> Path:
    """Return the path of a host's file. Its name is a hash, because a fingerprint may contain any character."""
    if not fingerprint:
        raise TesseraError("the fingerprint of a host must not be empty", got=fingerprint)
    return get_data_home() / "hosts" / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:24]}.toml"


def save_host(machine: Machine, fingerprint: str) -> Path:
    """Store a calibrated host, replacing an earlier calibration; return the path of the file."""
    path = get_host_path(fingerprint)
    write_toml(path, {"fingerprint": fingerprint, "machine": machine.to_dict()})
    return path


def load_host(fingerprint: str) -> Machine | None:
    """Load the calibrated host with a fingerprint, or return None if that host is not calibrated."""
    path = get_host_path(fingerprint)
    if not path.exists():
        return None
    try:
        stored = read_toml(path)
        if stored.get("fingerprint") != fingerprint:
            raise TesseraError(
                f"{path} belongs to another host", got=stored.get("fingerprint"), do="run `tessera doctor --calibrate`"
            )
        return Machine.from_dict(stored.get("machine", {}), str(path))
    except TesseraError as error:
        raise TesseraError(f"{error}; calibrate again with `tessera doctor --calibrate`") from None
