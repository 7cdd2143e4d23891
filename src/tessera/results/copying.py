"""Copying runs from one store to another; copying again copies only what is new."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tessera.errors import TesseraError
from tessera.results.record import Record
from tessera.results.runs import Run, check_run_name


class NamedDamage(Protocol):
    """A damaged record, as far as copying needs it."""

    @property
    def run(self) -> str:
        """The name of its run."""


class RunStore(Protocol):
    """The part of a store that copying needs."""

    @property
    def damaged(self) -> Sequence[NamedDamage]:
        """The damaged records that were skipped."""

    def list_runs(self) -> tuple[Run, ...]:
        """Return all runs."""

    def find_writer(self, run: Run) -> str:
        """Return the process that is writing a run; empty if there is none."""

    def read_records(self, run: Run) -> Iterator[Record]:
        """Yield the records of a run."""

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all changes are applied atomically."""

    def start_run(self, name: str | None = None, *, command: str = "", suite: str = "", started: str = "") -> Run:
        """Start a run."""

    def add_all(self, run: Run, records: Iterable[Record]) -> None:
        """Store several records."""

    def finish_run(self, run: Run, *, finished: str = "") -> Run:
        """Mark a run as finished."""

    def release_run(self, run: Run) -> None:
        """Let other processes continue an unfinished run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCount:
    """The result of copying: numbers of runs and records.

    `runs` and `records` were copied, `present` records were in the target already, `damaged` records were skipped, and
    `renamed` runs have an invalid name in the source. `complete` are the runs of the source that the target now has
    with all their records.
    """

    runs: int
    records: int
    present: int
    damaged: int
    renamed: int
    complete: tuple[Run, ...]


def copy_runs(source: RunStore, target: RunStore, runs: Iterable[Run] | None = None) -> CopyCount:
    """Copy runs to another store; copying again copies only what is new.

    A run is recognized by its name, command, suite and start. Another run of the same name is kept apart: the copy is
    named NAME@HASH; the copy of a run with an invalid name is named recovered-ID. A record that both stores have is
    replaced only if the copied one has more launches. A run that another process writes in either store is skipped.
    """
    copied_runs = copied = present = renamed = 0
    complete: list[Run] = []
    for run in source.list_runs() if runs is None else runs:
        if source.find_writer(run):  # still growing: the next copy takes the rest
            continue
        counterpart = find_counterpart(target, run)
        if counterpart and target.find_writer(counterpart):
            continue
        known = (
            {record.case.key: len(record.launches) for record in target.read_records(counterpart)}
            if counterpart
            else {}
        )
        fresh: list[Record] = []
        kept = 0
        for record in source.read_records(run):
            if len(record.launches) > known.get(record.case.key, -1):
                fresh.append(record)
            else:
                kept += 1
        if not fresh and counterpart and bool(counterpart.finished) >= bool(run.finished):
            present += kept
            complete.append(run)
            continue
        with target.transaction():
            if counterpart is None:
                name = choose_copy_name(target, run)
                counterpart = target.start_run(name, command=run.command, suite=run.suite, started=run.started)
            target.add_all(counterpart, fresh)
            if run.finished:
                target.finish_run(counterpart, finished=run.finished)
            else:
                target.release_run(counterpart)
        copied_runs, copied, present = copied_runs + 1, copied + len(fresh), present + kept
        renamed += not _has_valid_name(run)
        complete.append(run)
    damaged = {damage.run for damage in source.damaged}
    return CopyCount(
        runs=copied_runs,
        records=copied,
        present=present,
        damaged=len(source.damaged),
        renamed=renamed,
        complete=tuple(run for run in complete if run.name not in damaged),
    )


def find_counterpart(target: RunStore, run: Run) -> Run | None:
    """Return the copy of a run in another store."""
    names = (_get_base_name(run), _make_copy_name(run))
    matches = [
        other
        for other in target.list_runs()
        if other.name in names and (other.command, other.suite, other.started) == (run.command, run.suite, run.started)
    ]
    return matches[0] if matches else None


def choose_copy_name(target: RunStore, run: Run) -> str:
    """Return the name of the copy of a run in another store: its own name, or NAME@HASH if that is taken."""
    taken = {other.name for other in target.list_runs()}
    return _get_base_name(run) if _get_base_name(run) not in taken else _make_copy_name(run)


def _get_base_name(run: Run) -> str:
    """Return the name of a run without the hash that an earlier copy appended; recovered-ID for an invalid name."""
    return re.sub(r"@[0-9a-f]{8}$", "", run.name) if _has_valid_name(run) else f"recovered-{run.id}"


def _has_valid_name(run: Run) -> bool:
    try:
        check_run_name(run.name)
    except TesseraError:
        return False
    return True


def _make_copy_name(run: Run) -> str:
    name = _get_base_name(run)
    digest = hashlib.sha256("\0".join((name, run.command, run.suite, run.started)).encode("utf-8", "replace"))
    return f"{name[:80]}@{digest.hexdigest()[:8]}"
