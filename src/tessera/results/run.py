"""A named run of the store, and the names runs may have."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from tessera.errors import TesseraError

_NAME = re.compile(r"\w[\w.+:@ -]{0,99}")
_RECENT = re.compile(r"latest(?:~(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: its name, the command that made it and when. `finished` is empty while it goes on."""

    id: int
    name: str
    command: str = ""
    suite: str = ""
    started: str = ""
    finished: str = ""


def check_name(name: str) -> None:
    """Refuse names that could be taken for an option, a path or `latest`."""
    if not _NAME.fullmatch(name) or name.endswith((" ", ".json")) or name.startswith("latest"):
        raise TesseraError(
            "not a name for a run",
            got=name,
            allowed="letters and digits, then also . _ + : @ - and spaces, up to 100; not latest… or ….json",
        )


def steps_back(name: str) -> int | None:
    """How many runs before the newest `latest` or `latest~N` means; None for any other name.

    >>> steps_back("latest"), steps_back("latest~2"), steps_back("nightly")
    (0, 2, None)
    """
    match = _RECENT.fullmatch(name)
    return int(match[1] or 0) if match else None


def dated_name(today: str, taken: Collection[str]) -> str:
    """The first free name of the day.

    >>> dated_name("2026-11-15", {"2026-11-15-1"})
    '2026-11-15-2'
    """
    number = 1
    while f"{today}-{number}" in taken:
        number += 1
    return f"{today}-{number}"
