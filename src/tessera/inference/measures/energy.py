"""Energy of the processor packages, read from the kernel's RAPL counters if this process has permission."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP_FOLDER = Path("/sys/class/powercap")
PACKAGE_DOMAIN_PREFIX = "package"  # prefix of the name of a processor package's domain, as in package-0


@dataclass(frozen=True, slots=True)
class EnergyCounters:
    """A reading of the energy counters of all packages in microjoules, with the wrap-around value of each counter."""

    energy: tuple[int, ...]
    wraps_at: tuple[int, ...]

    def compute_joules(self, later: EnergyCounters) -> float:
        """Return the joules between this reading and `later`. A counter that decreased has wrapped around once.

        >>> EnergyCounters((900,), (1000,)).compute_joules(EnergyCounters((100,), (1000,)))
        0.0002
        """
        spent = 0
        for before, after, limit in zip(self.energy, later.energy, self.wraps_at, strict=True):
            spent += after - before if after >= before else after + limit - before
        return spent / 1e6


def read_energy_counters(root: Path = POWERCAP_FOLDER) -> EnergyCounters | None:
    """Read the counters of all packages; return None if there are no counters or this process may not read them.

    Sub-domains of a package (names with two colons) and the platform domain (`psys`) are skipped: their energy is
    already part of, or includes, the package counters, and would be counted twice.
    """
    domains = sorted(path for path in root.glob("*-rapl:*") if path.name.count(":") == 1)
    try:
        packages = [path for path in domains if (path / "name").read_text().startswith(PACKAGE_DOMAIN_PREFIX)]
        readings = [(_read_int(path / "energy_uj"), _read_int(path / "max_energy_range_uj")) for path in packages]
    except (OSError, ValueError):
        return None
    if not readings:
        return None
    return EnergyCounters(tuple(energy for energy, _ in readings), tuple(limit for _, limit in readings))


def _read_int(path: Path) -> int:
    return int(path.read_text())
