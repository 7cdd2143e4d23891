"""Where the runs took place: machine, libraries and settings, and what of it differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tessera.report.blocks import Block, Facts, Section, Table
from tessera.report.runs import RunView

# What a reader looks for first, by its place in a record's environment.
HEADLINE = {
    "cpu": "Processor",
    "cores": "Cores",
    "pinned_to": "Cores a worker may use",
    "threads": "Threads",
    "memory_gb": "Memory, GB",
    "governor": "Frequency governor",
    "kind": "Kind of machine",
    "system": "System",
    "python": "Python",
    "libraries.torch": "PyTorch",
    "allocator": "Allocator setting",
    "fingerprint": "Fingerprint",
}

Seen = dict[str, str]


def environment_section(runs: Sequence[RunView]) -> Section:
    """The environment of the runs, whatever their records hold of it."""
    each = [seen(run) for run in runs]
    everything = {path: _joined(e.get(path, "") for e in each) for path in dict.fromkeys(p for e in each for p in e)}
    blocks: list[Block] = []
    if headline := [(title, everything[path]) for path, title in HEADLINE.items() if path in everything]:
        blocks.append(Facts(headline))
    differing = [path for path in everything if len({e.get(path, "") for e in each}) > 1]
    if differing:
        rows = [[path, *(e.get(path, "") for e in each)] for path in differing]
        blocks.append(Table(["Setting", *(run.name for run in runs)], rows, "What differs between the runs"))
    if rest := [(path, value) for path, value in everything.items() if path not in HEADLINE]:
        blocks.append(Facts(rest, "Everything that was recorded", folded=True))
    intro = "" if blocks else "The records hold no environment."
    return Section("Environment", intro, blocks)


def seen(run: RunView) -> Seen:
    """What the records of a run say of their environment, by dotted path; changing values are joined."""
    found: dict[str, dict[str, None]] = {}
    for record in run.records:
        for path, value in flattened(record.environment):
            found.setdefault(path, {})[value] = None
    return {path: _joined(values) for path, values in found.items()}


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as dotted paths and text.

    >>> list(flattened({"cpu": "EPYC", "libraries": {"torch": "2.13"}, "simd": ["avx2", "amx"]}))
    [('cpu', 'EPYC'), ('libraries.torch', '2.13'), ('simd', 'avx2, amx')]
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(map(str, value))
        elif value is not None and value != "":
            yield f"{prefix}{key}", str(value)


def _joined(values: Any, most: int = 3) -> str:
    """Distinct values side by side; a figure that kept changing, such as a frequency, is cut short."""
    distinct = list(dict.fromkeys(value for value in values if value))
    shown = " | ".join(distinct[:most])
    return f"{shown} | … ({len(distinct)} values)" if len(distinct) > most else shown
