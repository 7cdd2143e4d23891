"""Conversion of records to and from rows of the store.

Samples are packed as little-endian 64-bit numbers in two blobs. The first holds the values of all launches, which is
all that comparisons need. The second holds CPU times, context switches, steal time, warm-ups and values per rank. The
layout (plain JSON) contains the count of each kind of number, and all other fields of the samples.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tessera.measure.samples import Samples
from tessera.results import strict_json
from tessera.results.checksums import compute_head_checksum, compute_record_checksum, matches_checksum
from tessera.results.database import DamagedStore
from tessera.results.metrics import Direction, Metric
from tessera.results.observation import Observation, summarize_launches
from tessera.results.record import Case, Record, check_schema, make_case, make_metric
from tessera.validation import check_fields, check_value


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """The database columns of one record. `body` is the record without samples and environment, as JSON.

    `run` is the name of the run; `environment` is the environment as JSON, and `digest` its hash. Parts that were not
    read are None.
    """

    run: str
    key: str
    feature: str
    name: str
    status: str
    digest: str
    body: str
    environment: str = ""
    values: bytes | None = None
    others: bytes | None = None

    def compute_checksum(self) -> bytes:
        """Return the checksum of a complete row."""
        assert self.values is not None
        assert self.others is not None
        texts = (self.run, self.key, self.feature, self.name, self.status, self.digest, self.body)
        return compute_record_checksum(*texts, self.values, self.others)

    def verify(self, checksum: bytes) -> None:
        """Raise an error if a part that was read does not match the checksum."""
        texts = (self.run, self.key, self.feature, self.name, self.status, self.digest, self.body)
        if not matches_checksum(checksum, compute_head_checksum(*texts), self.values, self.others):
            raise DamagedStore("the checksum does not match")


def to_row(record: Record, run: str) -> RecordRow:
    """Convert a record of the run with this name to a row."""
    layout, values, others = pack_launches(record.launches)
    body = replace(record, launches=(), environment={}).to_json()
    del body["environment"]
    environment = strict_json.dumps(dict(record.environment), sort_keys=True)
    return RecordRow(
        run=run,
        key=make_storable(record.case.key),
        feature=make_storable(record.case.feature),
        name=make_storable(record.case.name),
        status=record.status,
        digest=compute_digest(environment),
        environment=environment,
        body=strict_json.dumps(body | {"launches": layout}),
        values=values,
        others=others,
    )


def compute_digest(environment: str) -> str:
    """Return the hash by which equal environments are stored once."""
    return hashlib.sha256(environment.encode("utf-8", "surrogateescape")).hexdigest()


def to_record(row: RecordRow, environment: Mapping[str, Any]) -> Record:
    """Build a record from its row; every value is checked."""
    data = _parse_body(row)
    layout = data.pop("launches", ())
    _check_layout(layout, row)
    return Record.from_json(
        data | {"environment": environment}, unpack_launches(layout, row.values or b"", row.others or b"")
    )


def to_observation(row: RecordRow, environment: Mapping[str, Any]) -> Observation:
    """Build an observation from a row, without building `Samples` objects."""
    import numpy as np

    data = _parse_body(row)
    layout = data.pop("launches", ())
    check_fields(Record, data, "invalid record")
    check_schema(data)
    _check_layout(layout, row)
    direction: Direction = data.get("direction", "lower")
    launches = (np.frombuffer(part, dtype="<f8") for part in split_values(layout, row.values or b""))
    return Observation(
        key=make_case(data["case"]).key,
        version=data.get("version", "1"),
        status=data.get("status", "ok"),
        reason=data.get("reason", ""),
        unit=data.get("unit", "s"),
        direction=direction,
        figures=summarize_launches(launches, direction),
        environment=environment,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """The fields of a record that a history of one metric needs."""

    case: Case
    version: str
    metric: Metric | None


def to_metric_value(row: RecordRow, name: str) -> MetricValue:
    """Return one metric of a row, and the fields that identify the case."""
    data = _parse_body(row)
    metrics = data.get("metrics", {})
    metric = metrics.get(name) if isinstance(metrics, dict) else None
    check_fields(Case, data.get("case"), "invalid record: case")
    check_value(str, data.get("version", "1"), "invalid record: version")
    if metric is not None:
        check_fields(Metric, metric, f"invalid record: metric {name}")
    return MetricValue(
        case=make_case(data["case"]),
        version=data.get("version", "1"),
        metric=None if metric is None else make_metric(metric),
    )


def _parse_body(row: RecordRow) -> dict[str, Any]:
    try:
        data = strict_json.loads(row.body)
    except ValueError as error:
        raise DamagedStore(f"its text is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise DamagedStore("its text is not an object")
    return data


def _check_layout(layout: Any, row: RecordRow) -> None:
    """Raise an error unless the counts of the layout add up to the sizes of the blobs."""
    check_value(tuple[_LaunchLayout, ...], layout, "invalid record: launches")
    counts = [entry["values"] for entry in layout]
    others = [sum(entry[name] for name in _SECOND_BLOB_FIELDS) + sum(entry["ranks"]) for entry in layout]
    lists = [count for entry in layout for count in (*(entry[n] for n in _SECOND_BLOB_FIELDS), *entry["ranks"])]
    if (
        min((*counts, *lists), default=0) < 0
        or (row.values is not None and 8 * sum(counts) != len(row.values))
        or (row.others is not None and 8 * sum(others) != len(row.others))
    ):
        raise DamagedStore("the number of samples does not match their size")


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaunchLayout:
    """The fields of a launch in the layout: the counts of its numbers, and its other fields."""

    values: int
    cpu: int
    switches: int
    steal: int
    warmups: int
    ranks: tuple[int, ...]
    loops: int = 1
    faults_per_call: float = 0.0
    stopped_by: str = "count"
    interval: float | None = None
    joined_by: str = ""


def make_storable(text: str) -> str:
    """Return text that a database can store: NUL and lone surrogates (from undecodable output) are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


SampleLayout = list[dict[str, Any]]

# field -> struct code, in the order of the second blob; `ranks` follows
_SECOND_BLOB_FIELDS = {"cpu": "d", "switches": "q", "steal": "d", "warmups": "d"}


def pack_launches(launches: Sequence[Samples]) -> tuple[SampleLayout, bytes, bytes]:
    """Pack launches: return their layout, the blob of values and the blob of all other arrays."""
    layout: SampleLayout = []
    values, others = [], []
    for samples in launches:
        entry = {f.name: getattr(samples, f.name) for f in fields(samples)}
        values.append(_to_bytes("d", samples.values))
        for name, code in _SECOND_BLOB_FIELDS.items():
            others.append(_to_bytes(code, getattr(samples, name)))
        others.extend(_to_bytes("d", rank) for rank in samples.ranks)
        for name in ("values", *_SECOND_BLOB_FIELDS):
            entry[name] = len(entry[name])
        entry["ranks"] = [len(rank) for rank in samples.ranks]
        layout.append(entry)
    return layout, b"".join(values), b"".join(others)


def unpack_launches(layout: SampleLayout, values: bytes, others: bytes) -> tuple[Samples, ...]:
    """Return the launches from their layout and blobs, the inverse of `pack_launches`."""
    launches = []
    start = 0
    for entry, own in zip(layout, split_values(layout, values), strict=True):
        fields_of_launch: dict[str, Any] = {**entry, "values": struct.unpack(f"<{entry['values']}d", own)}
        for name, code in _SECOND_BLOB_FIELDS.items():
            fields_of_launch[name] = struct.unpack_from(f"<{entry[name]}{code}", others, start)
            start += 8 * entry[name]
        ranks = []
        for count in entry["ranks"]:
            ranks.append(struct.unpack_from(f"<{count}d", others, start))
            start += 8 * count
        fields_of_launch["ranks"] = tuple(ranks)
        launches.append(Samples.from_json(fields_of_launch))
    return tuple(launches)


def split_values(layout: SampleLayout, values: bytes) -> Iterator[memoryview]:
    """Yield the bytes of each launch's values."""
    view = memoryview(values)
    start = 0
    for entry in layout:
        end = start + 8 * entry["values"]
        yield view[start:end]
        start = end


def _to_bytes(code: str, numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}{code}", *numbers)
