"""The record: the only product of a run. Tables, files, plots and verdicts are views of records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tessera.errors import TesseraError
from tessera.measure.samples import Samples

SCHEMA = 1

Status = Literal["ok", "failed", "refused", "timed_out"]
Direction = Literal["lower", "higher", ""]
STATUSES: tuple[Status, ...] = ("ok", "failed", "refused", "timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured: a feature, a name within it and its parameters (plain JSON values).

    >>> Case(feature="ops", name="add", params={"size": "small", "pass": "forward"}).key
    'ops/add[pass=forward,size=small]'
    """

    feature: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The identity of the case: equal keys in two runs are the same case."""
        items = ",".join(f"{k}={_plain(v)}" for k, v in sorted(self.params.items()))
        return f"{self.feature}/{self.name}" + (f"[{items}]" if items else "")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Metric:
    """One named figure of a run: images/s, bytes, GFLOP/s, … `direction` says which way is better."""

    value: float
    unit: str = ""
    direction: Direction = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measured case. `launches` holds the raw samples, one entry per process launch: the sampling unit.

    `version` is the benchmark's own: an edited benchmark is not comparable with its older records.
    `environment` is what the worker saw of its machine and libraries (see `measure.environment`), with the
    `fingerprint` that says which records may be compared. `conditions` holds what changed during the run: load,
    steal, page faults. `predicted` holds what the machine model expected, by the names used in `metrics`.
    """

    case: Case
    version: str = "1"
    status: Status = "ok"
    reason: str = ""
    unit: str = "s"
    direction: Direction = "lower"
    launches: tuple[Samples, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    predicted: Mapping[str, Metric] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    started: str = ""
    seconds: float = 0.0
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise TesseraError("unknown status of a record", got=self.status, allowed=STATUSES)
        if self.status != "ok" and not self.reason:
            raise TesseraError(f"a record that is {self.status} needs a reason", got=self.case.key)

    @property
    def fingerprint(self) -> str:
        return str(self.environment.get("fingerprint", ""))

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all launches, one after the other."""
        return tuple(v for launch in self.launches for v in launch.values)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["launches"] = [s.to_json() for s in self.launches]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Read a record back; a record of a newer schema is refused."""
        kept = dict(data)
        if int(kept.get("schema", 0)) > SCHEMA:
            raise TesseraError(
                "a record of a newer schema", got=kept["schema"], allowed=f"up to {SCHEMA}", do="upgrade tessera"
            )
        kept["case"] = Case(**kept["case"])
        kept["launches"] = tuple(Samples.from_json(s) for s in kept.get("launches", ()))
        for name in ("metrics", "predicted"):
            kept[name] = {k: Metric(**m) for k, m in kept.get(name, {}).items()}
        kept["notes"] = tuple(kept.get("notes", ()))
        return cls(**kept)


def merge_launches(records: Iterable[Record]) -> Record:
    """Join the records of several launches of one case into one record that keeps every launch's samples.

    A launch that did not end well decides the status. Metrics are the median over the launches.
    """
    several = list(records)
    for record in several:
        if record.status != "ok":
            return record
    if len(several) == 1:
        return several[0]
    first = several[0]
    return replace(
        first,
        launches=tuple(s for r in several for s in r.launches),
        metrics={k: replace(m, value=_middle([r.metrics[k].value for r in several])) for k, m in first.metrics.items()},
        notes=tuple(dict.fromkeys(n for r in several for n in r.notes)),
        seconds=sum(r.seconds for r in several),
    )


def _middle(values: list[float]) -> float:
    import statistics

    return statistics.median(values)
