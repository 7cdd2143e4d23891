"""Sources of operator cases other than the catalogue: torch's OpInfo database, and the calls of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.errors import TesseraError
from tessera.launch.fresh import load_object
from tessera.results.record import Case

if TYPE_CHECKING:
    from tessera.operators.preparation import PreparedPass


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSource:
    """A source of cases.

    `prepare` and `preload` name functions as `module:function`: `prepare` prepares a case, and `preload` imports the
    packages that the source requires.
    """

    title: str
    prepare: str
    preload: str = ""


SOURCES = {
    "opinfo": CaseSource(
        title="torch's own operator database",
        prepare="tessera.operators.sources.opinfo:prepare_case",
        preload="tessera.operators.sources.opinfo_index:load_database",
    ),
    "model": CaseSource(title="the calls of a model", prepare="tessera.operators.sources.model:prepare_case"),
}


def find_source(case: Case) -> CaseSource | None:
    """Return the source of a case, or None for a case of the catalogue."""
    name = case.params.get("source")
    if name is None:
        return None
    if name not in SOURCES:
        raise TesseraError("unknown source of operators", got=name, allowed=SOURCES)
    return SOURCES[name]


def preload(source: CaseSource) -> None:
    """Import the packages of a source in the parent process, before it forks a process per case."""
    if source.preload:
        load_object(source.preload)()


def prepare_case(source: CaseSource, case: Case) -> PreparedPass:
    """Prepare the pass of a case from `source` for timing, and check its results."""
    prepared: PreparedPass = load_object(source.prepare)(case)
    return prepared
