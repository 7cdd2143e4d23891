"""Energy of the processor packages, where the kernel lets this process read their counters (RAPL)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
PACKAGE = "package"  # how the kernel names the domain of a processor package, as in package-0


@dataclass(frozen=True, slots=True)
class Counters:
    """The packages' energy counters at one moment, in microjoules, and where each starts again from zero."""

    energy: tuple[int, ...]
    wraps_at: tuple[int, ...]

    def joules_until(self, later: Counters) -> float:
        """Joules between two readings; a counter that fell has started again, once.

        >>> Counters((900,), (1000,)).joules_until(Counters((100,), (1000,)))
        0.0002
        """
        spent = 0
        for before, after, limit in zip(self.energy, later.energy, self.wraps_at, strict=True):
            spent += after - before if after >= before else after + limit - before
        return spent / 1e6


def read_counters(root: Path = POWERCAP) -> Counters | None:
    """The counters of all packages; None where there are none, or they may not be read.

    A package's own counter holds all of its parts, which have names with two colons, and the platform's (`psys`) holds
    the packages: either would count twice.
    """
    domains = sorted(path for path in root.glob("*-rapl:*") if path.name.count(":") == 1)
    try:
        packages = [path for path in domains if (path / "name").read_text().startswith(PACKAGE)]
        readings = [(_number(path / "energy_uj"), _number(path / "max_energy_range_uj")) for path in packages]
    except (OSError, ValueError):
        return None
    if not readings:
        return None
    return Counters(tuple(energy for energy, _ in readings), tuple(limit for _, limit in readings))


def _number(path: Path) -> int:
    return int(path.read_text())
