"""Runs: their description, and the names by which commands find them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from tessera.errors import TesseraError

_RUN_NAME_PATTERN = re.compile(r"\w[\w.+:@ -]{0,99}")
_LATEST_PATTERN = re.compile(r"latest(?:~([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: its name, command, start time and end time. `finished` is empty until the run is complete."""

    id: int
    name: str
    command: str = ""
    suite: str = ""
    started: str = ""
    finished: str = ""


def check_run_name(name: str) -> None:
    """Raise an error for a run name that could be mistaken for an option, a path or `latest`."""
    if not _RUN_NAME_PATTERN.fullmatch(name) or name.endswith((" ", ".json")) or name.startswith("latest"):
        raise TesseraError(
            "invalid run name",
            got=name,
            allowed="up to 100 letters, digits, spaces and . _ + : @ -; the first is a letter, digit or _; "
            "the name must not start with `latest` or end in .json or a space",
        )


def parse_latest(name: str) -> int | None:
    """Parse `latest` or `latest~N` as the number of runs before the newest; None for any other name.

    >>> parse_latest("latest"), parse_latest("latest~2"), parse_latest("nightly")
    (0, 2, None)
    """
    match = _LATEST_PATTERN.fullmatch(name)
    return int(match[1] or 0) if match else None


def choose_dated_name(today: str, taken: Collection[str]) -> str:
    """Return the first unused run name of the form DATE-N.

    >>> choose_dated_name("2026-11-15", {"2026-11-15-1"})
    '2026-11-15-2'
    """
    number = 1
    while f"{today}-{number}" in taken:
        number += 1
    return f"{today}-{number}"
