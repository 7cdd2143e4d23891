"""The record: the only product of a run. Tables, files, plots and verdicts are views of records."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from tessera.errors import BENCHMARK_FAILED, OK, TIMED_OUT, USAGE, BenchmarkFailed, TesseraError, TimedOut
from tessera.measure.samples import Samples

SCHEMA = 1
FLOOR = "floor"  # the metric that is a launch's quietest twentieth, and of several launches the lowest

Status = Literal["ok", "failed", "refused", "timed_out"]
Direction = Literal["lower", "higher", ""]
STATUSES: tuple[Status, ...] = ("ok", "failed", "refused", "timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured: a feature, a name within it and its parameters (plain JSON values).

    >>> Case(feature="ops", name="add", params={"size": "small", "pass": "forward"}).key
    'ops/add[pass=forward,size=small]'
    >>> Case(feature="ops", name="add", params={"shape": [8, 8], "scale": "1.0"}).key
    'ops/add[scale="1.0",shape=[8,8]]'
    """

    feature: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The identity of the case: equal keys in two runs are the same case."""
        items = ",".join(f"{k}={_plain(v)}" for k, v in sorted(self.params.items()))
        return f"{self.feature}/{self.name}" + (f"[{items}]" if items else "")


_WORD = re.compile(r"[^\W\d][\w.+:/-]*")
_OTHER_WORDS = {"true", "false", "null", "NaN", "Infinity"}


def _plain(value: Any) -> str:
    """A value as it stands in a key: words bare, all else as JSON, so that `1` and `"1"` stay two cases."""
    if isinstance(value, str) and value not in _OTHER_WORDS and _WORD.fullmatch(value):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


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
    `fingerprint` that says which records may be compared. `conditions` holds what changed during the run:
    load, steal, page faults. `predicted` holds what the machine model expected, by the names used in
    `metrics`.
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
        """All fields as plain values; NaN and the infinities stay floats (see `strict_json` for files)."""
        data: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        data["case"] = {
            "feature": self.case.feature,
            "name": self.case.name,
            "params": dict(self.case.params),
        }
        data["launches"] = [samples.to_json() for samples in self.launches]
        for name in ("metrics", "predicted"):
            data[name] = {
                key: {"value": m.value, "unit": m.unit, "direction": m.direction} for key, m in data[name].items()
            }
        for name in ("environment", "conditions"):
            data[name] = dict(data[name])
        data["notes"] = list(self.notes)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Read a record back; a record of a newer schema is refused, a field of a later release left out."""
        known = {f.name for f in fields(cls)}
        kept = {key: value for key, value in data.items() if key in known}
        check_schema(kept)
        kept["case"] = Case(**kept["case"])
        kept["launches"] = tuple(Samples.from_json(s) for s in kept.get("launches", ()))
        for name in ("metrics", "predicted"):
            kept[name] = {key: Metric(**m) for key, m in kept.get(name, {}).items()}
        kept["notes"] = tuple(kept.get("notes", ()))
        return cls(**kept)


def check_schema(data: Mapping[str, Any]) -> None:
    """Refuse a record that a later release wrote in another way."""
    if int(data.get("schema", SCHEMA)) > SCHEMA:
        raise TesseraError(
            "a record of a newer schema", got=data["schema"], allowed=f"up to {SCHEMA}", do="upgrade tessera"
        )


def record_of_error(case: Case, error: Exception, unit: str = "s") -> Record:
    """The record of a case that an error ended: refused where it was asked for in vain, otherwise broken."""
    status: Status = "refused" if isinstance(error, TesseraError) else "failed"
    if isinstance(error, BenchmarkFailed):
        status = "timed_out" if isinstance(error, TimedOut) else "failed"
    return Record(case=case, unit=unit, status=status, reason=str(error))


def exit_code(records: Iterable[Record]) -> int:
    """0 when cases were measured, or refused beside others; otherwise what went wrong.

    When nothing but refusals came of what was asked for, it was asked for in vain.
    """
    statuses = {record.status for record in records}
    if statuses == {"refused"}:
        return USAGE
    if "failed" in statuses:
        return BENCHMARK_FAILED
    return TIMED_OUT if "timed_out" in statuses else OK


def merge_launches(records: Iterable[Record]) -> Record:
    """Join the records of several launches of one case into one record that keeps every launch's samples.

    A launch that did not end well decides the status. Metrics are the median over the launches, the floor is the lowest
    of theirs, conditions are the worst.
    """
    several = list(records)
    launches = tuple(s for r in several for s in r.launches)
    for record in several:
        if record.status != "ok":
            return replace(record, launches=launches)
    if len(several) == 1:
        return several[0]
    first = several[0]
    if len({(r.fingerprint, r.version) for r in several}) > 1:
        raise TesseraError(
            "the launches of a case were measured in different ways, or by different benchmarks",
            got=first.case.key,
            do="measure it in a run of its own, without --resume",
        )
    return replace(
        first,
        launches=launches,
        conditions={key: _worst([r.conditions.get(key) for r in several]) for key in first.conditions},
        metrics={
            key: replace(metric, value=over([r.metrics[key].value for r in several if key in r.metrics]))
            for key, metric in first.metrics.items()
            for over in (min if key == FLOOR else statistics.median,)
        },
        notes=tuple(dict.fromkeys(n for r in several for n in r.notes)),
        seconds=sum(r.seconds for r in several),
    )


def _worst(values: list[Any]) -> Any:
    """The largest of several numbers; of anything else the first."""
    numbers = [value for value in values if isinstance(value, int | float)]
    return max(numbers) if numbers else values[0]
