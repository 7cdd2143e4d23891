"""The description of a machine: a grid of workers, their memory, FLOP/s and bandwidths.

Units are bytes, bytes/s, FLOP/s and seconds; a multiply-add is two FLOPs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.geometry.mesh import Mesh

# Number formats, with torch's name if there is one. In block formats (`_b`) several values share an exponent.
DTYPES = (
    "float64",
    "float32",
    "tfloat32",
    "bfloat16",
    "float16",
    "float8",
    "int8",
    "bfloat8_b",
    "bfloat4_b",
)

# Links by kind: description of the transfer, and whether all workers share one link (else every worker has its own).
LINKS: dict[str, tuple[str, bool]] = {
    "local": ("local memory of a worker", False),
    "link": ("link between two workers, one direction", False),
    "global": ("memory bandwidth (triad: bytes read plus written)", True),
    "copy": ("memory copy (copied bytes counted once)", True),
    "streaming": ("storage read, uncached", True),
    "streaming_warm": ("storage read, from the page cache", True),
    "host": ("copy from pinned host memory to the device", True),
    "network": ("network between machines, one port, one direction", True),
}

# Seconds of software per event, in addition to arithmetic, memory traffic and the latency of links.
OVERHEADS: dict[str, str] = {
    "launch": "launch overhead of one torch operation",
    "dispatch": "dispatch overhead of one operation on a split tensor",
    "message": "overhead of one message between workers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link: bandwidth in bytes/s, and latency of the first byte in seconds (0 if unknown).

    `bandwidth[n - 1]` is the total for n concurrently transferring workers; a single entry applies to any number.

    >>> Link(bandwidth=(10e9, 16e9)).get_bandwidth(2)
    16000000000.0
    """

    bandwidth: tuple[float, ...]
    latency: float = 0.0

    def get_bandwidth(self, workers: int) -> float:
        """Return the total bytes/s of `workers` concurrent workers; the last entry applies to larger numbers."""
        return self.bandwidth[min(workers, len(self.bandwidth)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, described in a file or calibrated.

    `flops` holds FLOP/s by dtype. A single entry is the rate of one worker; several entries are the total rates of 1,
    2, ... active workers (for hosts, whose cores share caches, memory and clock). `fidelity` holds the FLOP/s of each
    setting of a matrix engine that trades precision for speed. `overheads` holds seconds per event (`OVERHEADS`); an
    overhead that is not given counts as 0. `sources` gives the source of each value by its dotted name (`memory.local`,
    `flops.bfloat16`, `links.global`; `flops` covers all dtypes). `spread` gives the spread of the repetitions of each
    measured value, as a fraction of the best.
    """

    name: str
    title: str
    worker: str
    workers: Mesh
    local_memory: int
    global_memory: int
    flops: Mapping[str, tuple[float, ...]]
    fidelity: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)
    overheads: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"machine {self.name!r}"
        if not self.name:
            raise TesseraError("a machine requires a name", got=self.name)
        if not self.flops:
            raise TesseraError(f"{where} has no FLOP/s", allowed=DTYPES)
        for dtype, table in self.flops.items():
            if dtype not in DTYPES:
                raise TesseraError(f"{where}: unknown dtype", got=dtype, allowed=DTYPES)
            if len(table) not in (1, self.workers.size):
                raise TesseraError(
                    f"{where}: flops.{dtype} requires one entry, or one per number of workers",
                    got=len(table),
                    allowed=f"1 or {self.workers.size}",
                )
        for kind in self.links:
            if kind not in LINKS:
                raise TesseraError(f"{where}: unknown link", got=kind, allowed=LINKS)
        for kind in self.overheads:
            if kind not in OVERHEADS:
                raise TesseraError(f"{where}: unknown overhead", got=kind, allowed=OVERHEADS)
        figures = self.list_figures()
        for figure, values in figures.items():
            if not values or not all(value > 0 and math.isfinite(value) for value in values):
                raise TesseraError(f"{where}: {figure} must be positive", got=list(values))
        for kind, link in self.links.items():
            if not (link.latency >= 0 and math.isfinite(link.latency)):
                raise TesseraError(f"{where}: invalid latency of links.{kind}", got=link.latency, allowed="0 or more")
        known = {"grid", *(part for figure in figures for part in _list_source_keys(figure))}
        for field_name, keys in (("sources", self.sources), ("spread", self.spread)):
            if unknown := sorted(set(keys) - known):
                raise TesseraError(
                    f"{where}: `{field_name}` names an unknown value", got=unknown[0], allowed=sorted(known)
                )

    def list_figures(self) -> dict[str, tuple[float, ...]]:
        """Return all values of the machine by dotted name, such as `flops.bfloat16`."""
        figures: dict[str, tuple[float, ...]] = {
            "memory.local": (self.local_memory,),
            "memory.global": (self.global_memory,),
        }
        figures |= {f"flops.{dtype}": table for dtype, table in self.flops.items()}
        figures |= {f"fidelity.{name}": (rate,) for name, rate in self.fidelity.items()}
        figures |= {f"links.{kind}": link.bandwidth for kind, link in self.links.items()}
        figures |= {f"overheads.{kind}": (seconds,) for kind, seconds in self.overheads.items()}
        return figures

    def get_source(self, figure: str) -> str:
        """Return the source of a value by its dotted name, else the source of its group, else an empty string."""
        return next((self.sources[key] for key in _list_source_keys(figure) if key in self.sources), "")

    def get_rate(self, dtype: str, *, workers: int = 1, fidelity: str | None = None) -> float:
        """Return the total FLOP/s of `workers` workers, capped at the machine's number of workers.

        With `fidelity`, the rate is that of the fidelity instead of the dtype.
        """
        active = self._count_active(workers)
        if fidelity is not None:
            if fidelity not in self.fidelity:
                raise TesseraError(
                    f"{self.name} has no FLOP/s for this fidelity", got=fidelity, allowed=self.fidelity or "none"
                )
            return self.fidelity[fidelity] * active
        if dtype not in self.flops:
            raise TesseraError(f"{self.name} has no FLOP/s for this dtype", got=dtype, allowed=self.flops)
        table = self.flops[dtype]
        return table[0] * active if len(table) == 1 else table[active - 1]

    def get_link(self, kind: str) -> Link:
        """Return the link of a kind; raise an error if the machine does not have it."""
        if kind not in self.links:
            raise TesseraError(f"{self.name} has no bandwidth for this link", got=kind, allowed=self.links or "none")
        return self.links[kind]

    def get_overhead(self, kind: str) -> float:
        """Return the seconds of an overhead; 0 if the machine does not give it."""
        return self.overheads.get(kind, 0.0)

    def get_bandwidth(self, kind: str, *, workers: int = 1) -> float:
        """Return the total bytes/s of `workers` concurrent workers over a kind of link."""
        active = self._count_active(workers)
        link, (_, shared) = self.get_link(kind), LINKS[kind]
        return link.get_bandwidth(active) if shared else link.get_bandwidth(1) * active

    def _count_active(self, workers: int) -> int:
        if workers < 1:
            raise TesseraError("the number of workers must be positive", got=workers, allowed="1 or more")
        return min(workers, self.workers.size)

    def to_dict(self) -> dict[str, Any]:
        """Return the machine as nested dicts of plain values, as in a machine file."""
        return {
            "name": self.name,
            "title": self.title,
            "worker": self.worker,
            "grid": f"{self.workers.rows}x{self.workers.cols}",
            "notes": list(self.notes),
            "memory": {"local": self.local_memory, "global": self.global_memory},
            "flops": {dtype: list(table) for dtype, table in self.flops.items()},
            "fidelity": dict(self.fidelity),
            "links": {
                kind: {"bandwidth": list(link.bandwidth), "latency": link.latency} for kind, link in self.links.items()
            },
            "overheads": dict(self.overheads),
            "sources": dict(self.sources),
            "spread": {figure: list(values) for figure, values in self.spread.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "a machine") -> Machine:
        """Build a machine from plain values and check every field; `where` names the file in errors."""
        rest = dict(data)

        def take_field(key: str, read: Callable[[Any], Any], default: Any = None) -> Any:
            if key not in rest and default is None:
                raise TesseraError(f"{where}: missing field", got=key, do="see docs/machines.md")
            value = rest.pop(key, default)
            try:
                return read(value)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                shown = f"missing {error}" if isinstance(error, KeyError) else error
                raise TesseraError(f"{where}: invalid field {key} ({shown})", got=value) from None

        memory = take_field("memory", lambda m: (_parse_byte_count(m["local"]), _parse_byte_count(m["global"])))
        machine = cls(
            name=take_field("name", str),
            title=take_field("title", str),
            worker=take_field("worker", str),
            workers=take_field("grid", Mesh.parse),
            local_memory=memory[0],
            global_memory=memory[1],
            flops=take_field("flops", lambda m: {dtype: _parse_rates(v) for dtype, v in m.items()}),
            fidelity=take_field("fidelity", lambda m: {name: float(v) for name, v in m.items()}, {}),
            links=take_field("links", lambda m: {kind: _parse_link(v) for kind, v in m.items()}, {}),
            overheads=take_field("overheads", lambda m: {kind: float(v) for kind, v in m.items()}, {}),
            sources=take_field("sources", lambda m: {key: str(v) for key, v in m.items()}, {}),
            spread=take_field("spread", lambda m: {key: _parse_rates(v) for key, v in m.items()}, {}),
            notes=take_field("notes", lambda v: tuple(str(n) for n in v), ()),
        )
        if rest:
            raise TesseraError(f"{where}: unknown field", got=", ".join(rest), allowed=sorted(machine.to_dict()))
        return machine

    @classmethod
    def read_file(cls, path: Path) -> Machine:
        """Read a machine from a TOML file."""
        from tessera.machine.toml import read_toml

        return cls.from_dict(read_toml(path), str(path))

    def write_file(self, path: Path) -> None:
        """Write the machine as a TOML file for `read` and `load_machine`."""
        from tessera.machine.toml import write_toml

        write_toml(path, self.to_dict())


def _list_source_keys(figure: str) -> tuple[str, str]:
    return figure, figure.partition(".")[0]


def _parse_rates(value: Any) -> tuple[float, ...]:
    """Parse a rate: one number, or a list with the total rates of 1, 2, ... workers."""
    return tuple(float(v) for v in value) if isinstance(value, list | tuple) else (float(value),)


def _parse_link(value: Mapping[str, Any]) -> Link:
    extra = set(value) - {"bandwidth", "latency"}
    if extra:
        raise ValueError(f"unknown field {', '.join(sorted(extra))}")
    return Link(bandwidth=_parse_rates(value["bandwidth"]), latency=float(value.get("latency", 0.0)))


def _parse_byte_count(value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError("bytes must be whole numbers")
    return int(value)


def fit_link(transfers: Iterable[Mapping[str, float]]) -> Link:
    """Fit seconds = latency + bytes / bandwidth to measured transfers (`bytes` and `seconds` each).

    Minimises the squares of the relative errors. Transfers take microseconds to seconds; the absolute errors of large
    transfers would dominate the fit, and the latency, which small transfers determine, would be lost.

    >>> fit_link([{"bytes": 0, "seconds": 2e-6}, {"bytes": 1e6, "seconds": 102e-6}])
    Link(bandwidth=(10000000000.0,), latency=2e-06)
    """
    points = [(float(t["bytes"]), float(t["seconds"])) for t in transfers]
    for size, seconds in points:
        if not (size >= 0 and seconds > 0 and math.isfinite(size) and math.isfinite(seconds)):
            raise TesseraError("a transfer requires bytes and a positive time", got=(size, seconds))
    if len({size for size, _ in points}) < 2:
        raise TesseraError("fitting a link requires transfers of two sizes or more", got=f"{len(points)} of one size")

    # Weighted by 1 / seconds^2, so that errors are relative.
    weighted = [(1 / seconds**2, size, seconds) for size, seconds in points]
    total = sum(w for w, _, _ in weighted)
    mean_size = sum(w * size for w, size, _ in weighted) / total
    mean_time = sum(w * seconds for w, _, seconds in weighted) / total
    spread = sum(w * (size - mean_size) ** 2 for w, size, _ in weighted)
    slope = sum(w * (size - mean_size) * (seconds - mean_time) for w, size, seconds in weighted) / spread
    latency = mean_time - slope * mean_size
    if latency < 0:  # noise: fit a line through the origin instead
        latency = 0.0
        squares = sum(w * size**2 for w, size, _ in weighted)
        slope = sum(w * size * seconds for w, size, seconds in weighted) / squares
    if slope <= 0:
        raise TesseraError("larger transfers took no longer than small ones", do="measure larger sizes")
    return Link(bandwidth=(1 / slope,), latency=latency)
