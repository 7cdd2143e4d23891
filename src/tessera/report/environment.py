"""The environment section of the page: machine, libraries and settings of the runs, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tessera.report.blocks import Block, Facts, Section, Table
from tessera.report.runs import RunView

# Properties shown first, by their path in a record's environment.
HEADLINE_TITLES = {
    "cpu": "Processor",
    "device": "Device",
    "cores": "Cores",
    "pinned_to": "Cores a worker may use",
    "threads": "Threads",
    "memory_gb": "Memory, GiB",
    "governor": "Frequency governor",
    "kind": "Kind of machine",
    "system": "System",
    "python": "Python",
    "libraries.torch": "PyTorch",
    "allocator": "Allocator setting",
    "fingerprint": "Fingerprint",
}

FlatEnvironment = dict[str, str]


def build_environment_section(runs: Sequence[RunView]) -> Section:
    """Build the environment section from the records of the runs."""
    environments = [collect_environment(run) for run in runs]
    everything = {
        path: _join_values(e.get(path, "") for e in environments)
        for path in dict.fromkeys(p for e in environments for p in e)
    }
    blocks: list[Block] = []
    if headline := [(title, everything[path]) for path, title in HEADLINE_TITLES.items() if path in everything]:
        blocks.append(Facts(headline))
    differing = [path for path in everything if len({e.get(path, "") for e in environments}) > 1]
    if differing:
        rows = [[path, *(e.get(path, "") for e in environments)] for path in differing]
        blocks.append(Table(["Setting", *(run.name for run in runs)], rows, "Differences between the runs"))
    if rest := [(path, value) for path, value in everything.items() if path not in HEADLINE_TITLES]:
        blocks.append(Facts(rest, "Everything that was recorded", folded=True))
    intro = "" if blocks else "The records hold no environment."
    return Section("Environment", intro, blocks)


def collect_environment(run: RunView) -> FlatEnvironment:
    """Return the environment of a run's records by dotted path; values that differ between records are joined."""
    settings: dict[str, dict[str, None]] = {}
    for record in run.records:
        for path, value in flatten_values(record.environment):
            settings.setdefault(path, {})[value] = None
    return {path: _join_values(values) for path, values in settings.items()}


def flatten_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested values as dotted paths and text.

    >>> list(flatten_values({"cpu": "EPYC", "libraries": {"torch": "2.13"}, "simd": ["avx2", "amx"]}))
    [('cpu', 'EPYC'), ('libraries.torch', '2.13'), ('simd', 'avx2, amx')]
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_values(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(map(str, value))
        elif value is not None and value != "":
            yield f"{prefix}{key}", str(value)


def _join_values(values: Any, most: int = 3) -> str:
    """Join distinct values; a long list, such as changing frequencies, is truncated."""
    distinct = list(dict.fromkeys(value for value in values if value))
    shown = " | ".join(distinct[:most])
    return f"{shown} | … ({len(distinct)} values)" if len(distinct) > most else shown
