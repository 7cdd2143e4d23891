"""Checking a store, and repairing a damaged store by copying what can be read."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.results.copying import CopyCount, copy_runs
from tessera.results.database import DamagedStore
from tessera.results.store import DamagedRecord, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """The result of checking a store: counts, damaged records, and faults of the database itself."""

    runs: int
    records: int
    damaged: tuple[DamagedRecord, ...]
    faults: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not self.faults


def check_store(store: Store) -> StoreCheck:
    """Read every record of a store, verify all checksums and values, and check the structure of the database."""
    runs = store.list_runs()
    records = sum(1 for run in runs for _ in store.read_records(run))
    try:
        faults = tuple(store.check_structure())
    except DamagedStore as error:
        faults = (str(error),)
    return StoreCheck(runs=len(runs), records=records, damaged=store.damaged, faults=faults)


def repair_store(source: Store, target: Store) -> CopyCount:
    """Copy everything that can be read from a damaged store to a new store."""
    if target.list_runs():
        raise TesseraError("the new store has runs already", got=str(target.path), do="name a file that does not exist")
    return copy_runs(source, target)
