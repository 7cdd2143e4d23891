"""Where operator cases come from beside the catalogue: torch's OpInfo database, and the calls that a model makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.errors import TesseraError
from tessera.launch.fresh import resolve
from tessera.results.record import Case

if TYPE_CHECKING:
    from tessera.operators.ready import Ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of cases: `module:function` for making one ready, and for what to import before that."""

    title: str
    ready: str
    preload: str = ""


SOURCES = {
    "opinfo": Source(
        title="torch's own operator database",
        ready="tessera.operators.sources.opinfo:ready",
        preload="tessera.operators.sources.opinfo_index:op_db",
    ),
    "model": Source(title="the calls of a model", ready="tessera.operators.sources.model:ready"),
}


def source_of(case: Case) -> Source | None:
    """Where a case comes from; None when it is one of the catalogue."""
    name = case.params.get("source")
    if name is None:
        return None
    if name not in SOURCES:
        raise TesseraError("unknown source of operators", got=name, allowed=SOURCES)
    return SOURCES[name]


def preload(source: Source) -> None:
    """Import what the source's cases need, in the process that will be forked."""
    if source.preload:
        resolve(source.preload)()


def ready(source: Source, case: Case) -> Ready:
    """The case's pass, checked and ready to be timed."""
    made: Ready = resolve(source.ready)(case)
    return made
