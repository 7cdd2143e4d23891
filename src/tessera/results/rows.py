"""A record as a row of the store, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tessera.results import strict_json
from tessera.results.observation import Observation, launch_figures
from tessera.results.packing import pack, split_values, unpack
from tessera.results.record import Case, Record, check_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The columns of one record. `body` is the record without samples and environment, as JSON."""

    key: str
    feature: str
    name: str
    status: str
    environment: str
    body: str
    values: bytes
    others: bytes


def to_row(record: Record) -> Row:
    """Split a record into its columns."""
    layout, values, others = pack(record.launches)
    body = replace(record, launches=(), environment={}).to_json()
    del body["environment"]
    return Row(
        key=storable(record.case.key),
        feature=storable(record.case.feature),
        name=storable(record.case.name),
        status=record.status,
        environment=strict_json.dumps(dict(record.environment), sort_keys=True),
        body=strict_json.dumps(body | {"launches": layout}),
        values=values,
        others=others,
    )


def to_record(body: str, environment: Mapping[str, Any], values: bytes, others: bytes) -> Record:
    """Put a record together from its columns."""
    data = strict_json.loads(body)
    launches = unpack(data.pop("launches"), values, others)
    return replace(Record.from_json(data | {"environment": environment}), launches=launches)


def to_observation(body: str, environment: Mapping[str, Any], values: bytes) -> Observation:
    """What a comparison needs, without decoding the samples one by one."""
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
        figures=launch_figures(launches, data["direction"]),
        environment=environment,
    )


def storable(text: str) -> str:
    """Text that SQLite can hold: lone surrogates, as in undecodable output, are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
