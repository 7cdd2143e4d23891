"""Conversion of records to and from rows of the store.

Samples are packed as little-endian 64-bit numbers in two blobs. The first holds the values of all launches, which is
all that comparisons need. The second holds CPU times, context switches, steal time, warm-ups and values per rank. The
layout (plain JSON) contains the count of each kind of number, and all other fields of the samples.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tessera.measure.samples import Samples
from tessera.results import strict_json
from tessera.results.observation import Observation, summarize_launches
from tessera.results.record import Case, Record, check_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """The database columns of one record. `body` is the record without samples and environment, as JSON."""

    key: str
    feature: str
    name: str
    status: str
    environment: str
    body: str
    values: bytes
    others: bytes


def to_row(record: Record) -> RecordRow:
    """Convert a record to a row."""
    layout, values, others = pack_launches(record.launches)
    body = replace(record, launches=(), environment={}).to_json()
    del body["environment"]
    return RecordRow(
        key=make_storable(record.case.key),
        feature=make_storable(record.case.feature),
        name=make_storable(record.case.name),
        status=record.status,
        environment=strict_json.dumps(dict(record.environment), sort_keys=True),
        body=strict_json.dumps(body | {"launches": layout}),
        values=values,
        others=others,
    )


def to_record(body: str, environment: Mapping[str, Any], values: bytes, others: bytes) -> Record:
    """Build a record from the columns of its row."""
    data = strict_json.loads(body)
    launches = unpack_launches(data.pop("launches"), values, others)
    return Record.from_json(data | {"environment": environment}, launches)


def to_observation(body: str, environment: Mapping[str, Any], values: bytes) -> Observation:
    """Build an observation from the columns of a row, without building `Samples` objects."""
    import numpy as np

    data = strict_json.loads(body)
    check_schema(data)
    launches = (np.frombuffer(part, dtype="<f8") for part in split_values(data["launches"], values))
    return Observation(
        key=Case(**data["case"]).key,
        version=data["version"],
        status=data["status"],
        reason=data["reason"],
        unit=data["unit"],
        direction=data["direction"],
        figures=summarize_launches(launches, data["direction"]),
        environment=environment,
    )


def make_storable(text: str) -> str:
    """Return text that SQLite can store: lone surrogates (from undecodable output) are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
