"""Checksums of runs and records, which are verified whenever they are read."""

from __future__ import annotations

import struct
import zlib

CHECKSUM_BYTES = 12


def compute_record_checksum(
    run: str, key: str, feature: str, name: str, status: str, environment: str, body: str, values: bytes, others: bytes
) -> bytes:
    """Return the checksum of a record: three CRCs, of its texts, its values and its other samples.

    `run` is the name of the run, `environment` the digest of the environment.
    """
    head = compute_head_checksum(run, key, feature, name, status, environment, body)
    return head + _pack_crc(values) + _pack_crc(others)


def compute_head_checksum(*texts: str) -> bytes:
    """Return the checksum of the texts of a record, the first part of its checksum."""
    return _pack_crc(b"".join(struct.pack("<Q", len(encoded)) + encoded for encoded in map(_encode, texts)))


def compute_run_checksum(name: str, command: str, suite: str, started: str, finished: str) -> int:
    """Return the checksum of the description of a run."""
    return int.from_bytes(compute_head_checksum(name, command, suite, started, finished), "little")


def matches_checksum(checksum: bytes, head: bytes, values: bytes | None = None, others: bytes | None = None) -> bool:
    """Return whether the parts of a record that were read match its checksum; None is a part that was not read."""
    parts = (head, None if values is None else _pack_crc(values), None if others is None else _pack_crc(others))
    return len(checksum) == CHECKSUM_BYTES and all(
        part is None or part == checksum[4 * place : 4 * place + 4] for place, part in enumerate(parts)
    )


def _pack_crc(content: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(content))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
