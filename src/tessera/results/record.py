"""The record of one measured case, from which tables, files, plots and comparisons are made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from tessera.errors import (
    EXIT_BENCHMARK_FAILED,
    EXIT_OK,
    EXIT_TIMED_OUT,
    EXIT_USAGE,
    BenchmarkFailed,
    TesseraError,
    TimedOut,
)
from tessera.measure.samples import Samples
from tessera.results.metrics import Direction as Direction
from tessera.results.metrics import Metric as Metric
from tessera.results.metrics import merge_metrics
from tessera.tabular import Tabular
from tessera.validation import check_fields

RECORD_SCHEMA = 2

Status = Literal["ok", "failed", "refused", "timed_out"]
STATUSES: tuple[Status, ...] = ("ok", "failed", "refused", "timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A benchmark case: a feature, a name within the feature, and parameters (plain JSON values).

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
        """The text that identifies the case: records with equal keys in two runs belong to the same case."""
        items = ",".join(f"{k}={_format_param_value(v)}" for k, v in sorted(self.params.items()))
        return f"{self.feature}/{self.name}" + (f"[{items}]" if items else "")

    def without(self, *names: str) -> Case:
        """Return the case without the parameters `names`."""
        kept = {name: value for name, value in self.params.items() if name not in names}
        return Case(feature=self.feature, name=self.name, params=kept)


_WORD_PATTERN = re.compile(r"[^\W\d][\w.+:/-]*")
_JSON_CONSTANTS = {"true", "false", "null", "NaN", "Infinity"}


def _format_param_value(value: Any) -> str:
    """Format a parameter for a key: words without quotes, other values as JSON, so that `1` and `"1"` differ."""
    if isinstance(value, str) and value not in _JSON_CONSTANTS and _WORD_PATTERN.fullmatch(value):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Tabular):
    """One measured case. `launches` holds the raw samples of each process launch, which is the sampling unit.

    `version` is the version of the benchmark: records of different versions are not comparable.
    `environment` describes the worker's machine and libraries (see `measure.environment`); its `fingerprint` decides
    which records may be compared. `conditions` holds the state of the machine during the run: load, steal time,
    frequency. `predicted` holds the predictions of the machine model, by the names used in `metrics`.

    `verdict` is the outcome of a case that ends in one: `faster`, `slower`, `same` or `unresolved` for an A/B
    comparison, `passed` or `failed` for a validation. `chosen` holds the values that the benchmark selected for
    parameters left to it, e.g. the transport of `transport=auto`. `details` holds every other structured result as
    plain JSON values: the verdict of each rank, the profile of a pass, the time of each operator. `notes` are remarks
    for people; no code reads them.
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
    verdict: str | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    started: str = ""
    seconds: float = 0.0
    schema: int = RECORD_SCHEMA

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise TesseraError("unknown record status", got=self.status, allowed=STATUSES)
        if self.status != "ok" and not self.reason:
            raise TesseraError(f"a record with status {self.status} requires a reason", got=self.case.key)

    @property
    def fingerprint(self) -> str:
        return str(self.environment.get("fingerprint", ""))

    @property
    def values(self) -> tuple[float, ...]:
        """The sample values of all launches, concatenated."""
        return tuple(v for launch in self.launches for v in launch.values)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a list of one row: the case, its parameters, its status, and the value of every metric."""
        case = {"feature": self.case.feature, "name": self.case.name, **self.case.params}
        metrics = {name: metric.value for name, metric in self.metrics.items()}
        verdict = {"verdict": self.verdict} if self.verdict else {}
        return [{**case, "status": self.status, **verdict, "launches": len(self.launches), **metrics}]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, samples included."""
        return self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return all fields as plain values; NaN and infinities stay floats (see `strict_json` for files)."""
        data: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        data["case"] = {"feature": self.case.feature, "name": self.case.name, "params": dict(self.case.params)}
        data["launches"] = [samples.to_json() for samples in self.launches]
        for name in ("metrics", "predicted"):
            data[name] = {
                key: {"value": m.value, "unit": m.unit, "direction": m.direction} for key, m in data[name].items()
            }
        for name in ("environment", "conditions", "chosen", "details"):
            data[name] = dict(data[name])
        data["notes"] = list(self.notes)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any], launches: tuple[Samples, ...] | None = None) -> Record:
        """Build a record from plain values; `launches`, if given, replaces the samples in `data`.

        A record of an older schema is migrated; a record of a newer schema is an error. Unknown fields are ignored.

        Raises:
            InvalidValue: a field is missing, or has a value of the wrong type or size.
        """
        known = {f.name for f in fields(cls)}
        kept = {key: value for key, value in data.items() if key in known}
        check_fields(cls, kept, "invalid record")
        check_schema(kept)
        kept["case"] = make_case(kept["case"])
        if launches is None:
            launches = tuple(Samples.from_json(s) for s in kept.get("launches", ()))
        kept["launches"] = launches
        for name in ("metrics", "predicted"):
            kept[name] = {key: make_metric(m) for key, m in kept.get(name, {}).items()}
        kept["notes"] = tuple(kept.get("notes", ()))
        return migrate_record(cls(**kept))


def make_case(data: Mapping[str, Any]) -> Case:
    """Build a case from checked plain values; unknown fields are ignored."""
    return Case(feature=data["feature"], name=data["name"], params=data.get("params", {}))


def make_metric(data: Mapping[str, Any]) -> Metric:
    """Build a metric from checked plain values; unknown fields are ignored."""
    return Metric(data["value"], data.get("unit", ""), data.get("direction", ""))


def check_schema(data: Mapping[str, Any]) -> None:
    """Raise an error if a record has a newer schema than this release supports."""
    if data.get("schema", RECORD_SCHEMA) > RECORD_SCHEMA:
        raise TesseraError(
            "the record has a newer schema", got=data["schema"], allowed=f"up to {RECORD_SCHEMA}", do="upgrade tessera"
        )


def make_error_record(case: Case, error: Exception, unit: str = "s") -> Record:
    """Return the record of a case that ended in an error: refused, failed or timed out."""
    status: Status = "refused" if isinstance(error, TesseraError) else "failed"
    if isinstance(error, BenchmarkFailed):
        status = "timed_out" if isinstance(error, TimedOut) else "failed"
    return Record(case=case, unit=unit, status=status, reason=str(error))


def compute_exit_code(records: Iterable[Record]) -> int:
    """Return the exit code of the worst failure (0: none), or the code of usage errors if all cases were refused."""
    statuses = {record.status for record in records}
    if statuses == {"refused"}:
        return EXIT_USAGE
    if "failed" in statuses:
        return EXIT_BENCHMARK_FAILED
    return EXIT_TIMED_OUT if "timed_out" in statuses else EXIT_OK


def merge_launches(records: Iterable[Record]) -> Record:
    """Merge the records of several launches of one case into one that keeps the samples of every launch.

    If a launch failed, the merged record has its status. Metrics are merged as declared (`results.metrics`), conditions
    by their largest values; `chosen` and `details` come from the first launch.
    """
    launch_records = list(records)
    launches = tuple(s for r in launch_records for s in r.launches)
    for record in launch_records:
        if record.status != "ok":
            return replace(record, launches=launches)
    if len(launch_records) == 1:
        return launch_records[0]
    first = launch_records[0]
    if len({(r.fingerprint, r.version) for r in launch_records}) > 1:
        raise TesseraError(
            "the launches of a case have different fingerprints or benchmark versions",
            got=first.case.key,
            do="measure the case in a new run, without --resume",
        )
    return replace(
        first,
        launches=launches,
        conditions={key: _merge_condition([r.conditions.get(key) for r in launch_records]) for key in first.conditions},
        metrics=merge_metrics((r.metrics for r in launch_records), first.case.feature),
        notes=tuple(dict.fromkeys(n for r in launch_records for n in r.notes)),
        seconds=sum(r.seconds for r in launch_records),
    )


def _merge_condition(values: list[Any]) -> Any:
    """Return the largest of several numbers; if none is a number, the first value that is not empty."""
    numbers = [value for value in values if isinstance(value, int | float)]
    return max(numbers) if numbers else next((value for value in values if value), values[0])


# In schema 1, features stored these results in `conditions`.
_CHOSEN_FIELDS_V1 = {
    "halo": ("transport", "layout"),
    "conv": ("layout", "cores", "slices"),
    "infer": ("load_generator",),
}
_MACHINE_FIELDS_V1 = ("load", "steal", "mhz")
_AB_VERDICTS_V1 = ("slower", "faster", "same", "unresolved")
_OUTPUT_NOTES_V1 = {"gives a view: nothing is copied": "view", "copies what may be had as a view": "copy"}


def migrate_record(record: Record) -> Record:
    """Return a record of schema 1 in the form of schema 2; a newer record is returned unchanged.

    Schema 1 had neither `verdict` nor `chosen` nor `details`: verdicts were notes, the two sides of an A/B comparison
    were in `Samples.ranks`, and all other results in `conditions`.
    """
    if record.schema >= 2:
        return record
    feature, conditions = record.case.feature, dict(record.conditions)
    chosen = {name: conditions.pop(name) for name in _CHOSEN_FIELDS_V1.get(feature, ()) if name in conditions}
    machine = {name: conditions.pop(name) for name in _MACHINE_FIELDS_V1 if name in conditions}
    details = {name.replace(" of B", "_b"): value for name, value in conditions.items()}
    launches, notes, verdict = record.launches, record.notes, record.verdict
    if feature == "ab":
        verdict = next((note for note in notes if note in _AB_VERDICTS_V1), None)
        notes = tuple(note for note in notes if note != verdict)
        if launches and len(launches[0].ranks) == 2:
            details["sides"] = {side: list(times) for side, times in zip("ab", launches[0].ranks, strict=True)}
            launches = (replace(launches[0], ranks=()),)
    lines = [note for note in notes if note.startswith("Validation ")]
    if lines:
        details["rank_verdicts"] = [
            {"rank": rank, "passed": line.startswith("Validation passed"), "text": line}
            for rank, line in enumerate(lines)
        ]
        verdict = "failed" if record.status == "failed" else "passed"
        notes = tuple(note for note in notes if note not in lines)
    if outputs := [_OUTPUT_NOTES_V1[note] for note in notes if note in _OUTPUT_NOTES_V1]:
        details["output"] = outputs[0]
    if remarks := [note for note in notes if feature == "infer" and note.startswith("operators ")]:
        details["remarks"] = remarks
    return replace(
        record,
        launches=launches,
        conditions=machine,
        verdict=verdict,
        chosen=chosen,
        details=details,
        notes=notes,
        schema=RECORD_SCHEMA,
    )
