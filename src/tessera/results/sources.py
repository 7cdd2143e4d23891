"""A run as a user names it: by its name in a store, or by the file it was exported to."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tessera.results.export import read_json
from tessera.results.observation import Observation, observe
from tessera.results.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run's name, when it was started, and what a comparison sees of its records."""

    name: str
    started: str
    observations: tuple[Observation, ...]


def is_file(text: str) -> bool:
    """Whether a user means a file: runs have neither slashes nor the suffix .json in their names.

    >>> is_file("nightly"), is_file("nightly.json"), is_file("out/nightly")
    (False, True, True)
    """
    return text.endswith(".json") or "/" in text


def read_source(
    text: str,
    store: str | Path | None = None,
    *,
    feature: str | None = None,
    name_glob: str | None = None,
) -> Source:
    """The run that a user means, with the cases of one feature or of names that fit a pattern."""
    if is_file(text):
        exported = read_json(text)
        kept = (
            record
            for record in exported.records
            if (feature is None or record.case.feature == feature)
            and (name_glob is None or fnmatchcase(record.case.name, name_glob))
        )
        return Source(name=text, started=exported.started, observations=tuple(observe(r) for r in kept))
    with Store(store, create=False) as opened:
        run = opened.run(text)
        found = tuple(opened.observations(run, feature, name_glob))
    return Source(name=run.name, started=run.started, observations=found)
