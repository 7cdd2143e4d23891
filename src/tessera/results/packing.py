"""Raw samples as compact bytes: eight per value, little-endian, in two blobs.

The values of all launches stand in the first blob, because comparing needs only them; CPU times, switches,
steal, warm-ups and per-rank values stand in the second. The layout, plain JSON values, says how many of
each there are and holds every other field of the samples.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from tessera.measure.samples import Samples

Layout = list[dict[str, Any]]

# field -> struct code, in the order in which they stand in the second blob; `ranks` follows them
_OTHERS = {"cpu": "d", "switches": "q", "steal": "d", "warmups": "d"}


def pack(launches: Sequence[Samples]) -> tuple[Layout, bytes, bytes]:
    """The layout, the values and the other arrays of some launches."""
    layout: Layout = []
    values, others = [], []
    for samples in launches:
        entry = {f.name: getattr(samples, f.name) for f in fields(samples)}
        values.append(_bytes("d", samples.values))
        for name, code in _OTHERS.items():
            others.append(_bytes(code, getattr(samples, name)))
        others.extend(_bytes("d", rank) for rank in samples.ranks)
        for name in ("values", *_OTHERS):
            entry[name] = len(entry[name])
        entry["ranks"] = [len(rank) for rank in samples.ranks]
        layout.append(entry)
    return layout, b"".join(values), b"".join(others)


def unpack(layout: Layout, values: bytes, others: bytes) -> tuple[Samples, ...]:
    """The launches, exactly as they were packed."""
    launches = []
    start = 0
    for entry, own in zip(layout, split_values(layout, values), strict=True):
        found: dict[str, Any] = {**entry, "values": struct.unpack(f"<{entry['values']}d", own)}
        for name, code in _OTHERS.items():
            found[name] = struct.unpack_from(f"<{entry[name]}{code}", others, start)
            start += 8 * entry[name]
        ranks = []
        for count in entry["ranks"]:
            ranks.append(struct.unpack_from(f"<{count}d", others, start))
            start += 8 * count
        found["ranks"] = tuple(ranks)
        launches.append(Samples.from_json(found))
    return tuple(launches)


def split_values(layout: Layout, values: bytes) -> Iterator[memoryview]:
    """The bytes of each launch's values, for a reader that needs nothing else."""
    view = memoryview(values)
    start = 0
    for entry in layout:
        end = start + 8 * entry["values"]
        yield view[start:end]
        start = end


def _bytes(code: str, numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}{code}", *numbers)
