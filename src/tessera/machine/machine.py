"""A machine as figures: its workers in a grid, their memory, how fast they compute and how fast bytes move.

Bytes, bytes/s, FLOP/s and seconds throughout; a multiply-add is two FLOPs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.geometry.mesh import Mesh

# Number formats, by their torch name where torch has one; the block formats (_b) share exponents.
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

# Between what each link moves bytes, and whether all workers share it (otherwise every worker has its own).
LINKS: dict[str, tuple[str, bool]] = {
    "local": ("a worker and its own memory", False),
    "link": ("one worker and another, one way", False),
    "global": ("the workers and the memory they share, bytes read and written together", True),
    "copy": ("one place in the shared memory and another, bytes copied counted once", True),
    "streaming": ("the store behind the memory (a disk, the host) and the memory", True),
    "streaming_warm": ("the same store when the operating system has cached it", True),
    "network": ("this machine and the next, one port, one way", True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way for bytes to move: bytes/s and seconds before the first byte arrives (0 where it is not known).

    `bandwidth` is a table by number of workers that move bytes at once; one entry holds for any number.

    >>> Link(bandwidth=(10e9, 16e9)).at(2)
    16000000000.0
    """

    bandwidth: tuple[float, ...]
    latency: float = 0.0

    def at(self, workers: int) -> float:
        """The bytes/s of `workers` workers together; more workers than were measured move no more."""
        return self.bandwidth[min(workers, len(self.bandwidth)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A described or calibrated machine.

    `flops` and `fidelity` hold FLOP/s: one entry is what every worker adds, several are a table by number of
    workers at work (of a host, whose cores share caches, memory and clock). `fidelity` names the settings of
    a matrix engine that trades precision for speed, where there is one. `sources` says where each figure is
    from, by its dotted name (`memory.local`, `flops.bfloat16`, `links.global`; `flops` alone stands for all
    of them), and `spread` how far apart the repetitions of a measured figure were, as a fraction of the best.
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
    sources: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"machine {self.name!r}"
        if not self.name:
            raise TesseraError("a machine needs a name", got=self.name)
        if not self.flops:
            raise TesseraError(f"{where} has no FLOP/s", allowed=DTYPES)
        for dtype, table in self.flops.items():
            if dtype not in DTYPES:
                raise TesseraError(f"{where}: unknown dtype", got=dtype, allowed=DTYPES)
            if len(table) not in (1, self.workers.size):
                raise TesseraError(
                    f"{where}: flops.{dtype} needs one entry, or one per number of workers",
                    got=len(table),
                    allowed=f"1 or {self.workers.size}",
                )
        for kind in self.links:
            if kind not in LINKS:
                raise TesseraError(f"{where}: unknown link", got=kind, allowed=LINKS)
        figures = self.figures()
        for figure, values in figures.items():
            if not values or not all(value > 0 and math.isfinite(value) for value in values):
                raise TesseraError(f"{where}: {figure} must be positive", got=list(values))
        for kind, link in self.links.items():
            if not (link.latency >= 0 and math.isfinite(link.latency)):
                raise TesseraError(f"{where}: links.{kind} has a bad latency", got=link.latency, allowed="0 or more")
        known = {"grid", *(part for figure in figures for part in _prefixes(figure))}
        for what, keys in (("source", self.sources), ("spread", self.spread)):
            if unknown := sorted(set(keys) - known):
                raise TesseraError(
                    f"{where}: a {what} of a figure that is not there", got=unknown[0], allowed=sorted(known)
                )

    def figures(self) -> dict[str, tuple[float, ...]]:
        """Every figure by its dotted name."""
        found: dict[str, tuple[float, ...]] = {
            "memory.local": (self.local_memory,),
            "memory.global": (self.global_memory,),
        }
        found |= {f"flops.{dtype}": table for dtype, table in self.flops.items()}
        found |= {f"fidelity.{name}": (rate,) for name, rate in self.fidelity.items()}
        found |= {f"links.{kind}": link.bandwidth for kind, link in self.links.items()}
        return found

    def source(self, figure: str) -> str:
        """Where a figure is from: its own source, or that of the group it belongs to; empty if not said."""
        return next((self.sources[key] for key in _prefixes(figure) if key in self.sources), "")

    def rate(self, dtype: str, *, workers: int = 1, fidelity: str | None = None) -> float:
        """FLOP/s of `workers` workers together, at most those there are: more of them compute no faster."""
        active = self._active(workers)
        if fidelity is not None:
            if fidelity not in self.fidelity:
                raise TesseraError(f"{self.name} has no such fidelity", got=fidelity, allowed=self.fidelity or "none")
            return self.fidelity[fidelity] * active
        if dtype not in self.flops:
            raise TesseraError(f"{self.name} has no FLOP/s for this dtype", got=dtype, allowed=self.flops)
        table = self.flops[dtype]
        return table[0] * active if len(table) == 1 else table[active - 1]

    def link(self, kind: str) -> Link:
        """The link of a kind; an error that says which there are if it is not described."""
        if kind not in self.links:
            raise TesseraError(f"{self.name} has no figure for this link", got=kind, allowed=self.links or "none")
        return self.links[kind]

    def bandwidth(self, kind: str, *, workers: int = 1) -> float:
        """Bytes/s of `workers` workers together over a kind of link."""
        active = self._active(workers)
        link, (_, shared) = self.link(kind), LINKS[kind]
        return link.at(active) if shared else link.at(1) * active

    def _active(self, workers: int) -> int:
        if workers < 1:
            raise TesseraError("a prediction needs workers", got=workers, allowed="1 or more")
        return min(workers, self.workers.size)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they stand in a machine file."""
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
            "sources": dict(self.sources),
            "spread": {figure: list(values) for figure, values in self.spread.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "a machine") -> Machine:
        """Read a machine back from plain values, checking every field; `where` names the file in errors."""
        rest = dict(data)

        def take(key: str, read: Callable[[Any], Any], default: Any = None) -> Any:
            if key not in rest and default is None:
                raise TesseraError(f"{where}: missing field", got=key, do="see docs/machines.md")
            value = rest.pop(key, default)
            try:
                return read(value)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                shown = f"missing {error}" if isinstance(error, KeyError) else error
                raise TesseraError(f"{where}: field {key} is not right ({shown})", got=value) from None

        memory = take("memory", lambda m: (_whole(m["local"]), _whole(m["global"])))
        machine = cls(
            name=take("name", str),
            title=take("title", str),
            worker=take("worker", str),
            workers=take("grid", Mesh.parse),
            local_memory=memory[0],
            global_memory=memory[1],
            flops=take("flops", lambda m: {dtype: _table(v) for dtype, v in m.items()}),
            fidelity=take("fidelity", lambda m: {name: float(v) for name, v in m.items()}, {}),
            links=take("links", lambda m: {kind: _link(v) for kind, v in m.items()}, {}),
            sources=take("sources", lambda m: {key: str(v) for key, v in m.items()}, {}),
            spread=take("spread", lambda m: {key: _table(v) for key, v in m.items()}, {}),
            notes=take("notes", lambda v: tuple(str(n) for n in v), ()),
        )
        if rest:
            raise TesseraError(f"{where}: unknown field", got=", ".join(rest), allowed=sorted(machine.to_dict()))
        return machine

    @classmethod
    def read(cls, path: Path) -> Machine:
        """Read a machine from a TOML file."""
        from tessera.machine.toml import read_toml

        return cls.from_dict(read_toml(path), str(path))

    def write(self, path: Path) -> None:
        """Write the machine as a TOML file that `read` and `load_machine` take."""
        from tessera.machine.toml import write_toml

        write_toml(path, self.to_dict())


def _prefixes(figure: str) -> tuple[str, str]:
    return figure, figure.partition(".")[0]


def _table(value: Any) -> tuple[float, ...]:
    """A rate is one number, or a list of them by number of workers."""
    return tuple(float(v) for v in value) if isinstance(value, list | tuple) else (float(value),)


def _link(value: Mapping[str, Any]) -> Link:
    extra = set(value) - {"bandwidth", "latency"}
    if extra:
        raise ValueError(f"unknown field {', '.join(sorted(extra))}")
    return Link(bandwidth=_table(value["bandwidth"]), latency=float(value.get("latency", 0.0)))


def _whole(value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError("bytes are whole numbers")
    return int(value)
