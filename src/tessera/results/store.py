"""The store: all runs and their records in one SQLite file, which stays valid if a writer is killed at any time.

Only the parent process writes. Each record is one transaction in write-ahead mode, synced before `add` returns: an
added record survives a kill or a power failure, and no record is ever partly written.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Self

from tessera.errors import TesseraError, suggest_similar
from tessera.results import strict_json
from tessera.results.observation import Observation, Reading
from tessera.results.record import Case, Metric, Record, Status
from tessera.results.record_rows import make_storable, to_observation, to_record, to_row
from tessera.results.schema import explain_sqlite_errors, open_database


def get_default_store_path() -> Path:
    """Return the path in the environment variable `TESSERA_STORE`; default: `.tessera/results.sqlite`."""
    return Path(os.environ.get("TESSERA_STORE") or Path(".tessera") / "results.sqlite")


class Store:
    """Runs and their records in one file; use it as a context manager.

    With `create=False` a missing file is an error.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = Path(path) if path is not None else get_default_store_path()
        self._environments: dict[int, Mapping[str, Any]] = {}
        self._db = open_database(self.path, create=create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all changes in the block atomically; a nested transaction is part of the outer transaction."""
        if self._db.in_transaction:
            yield
            return
        with explain_sqlite_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite has already rolled back if the disk is full
                    self._db.execute("ROLLBACK")
                raise

    def start_run(
        self, name: str | None = None, *, command: str = "", suite: str = "", resume: bool = False, started: str = ""
    ) -> Run:
        """Start a run, or with `resume` continue an unfinished run.

        Without a name, a new run is named after the date, and `resume` continues the newest unfinished run of the
        suite. `started` defaults to now.
        """
        if resume:
            return self._find_resumable_run(name, suite)
        if name is not None:
            check_run_name(name)
        now = _format_current_time()
        with self.transaction():
            runs_by_name = {run.name: run for run in self.list_runs()}
            if name in runs_by_name:
                unfinished = not runs_by_name[name].finished
                raise TesseraError(
                    f"{'an unfinished' if unfinished else 'a finished'} run of this name exists",
                    got=name,
                    do="choose another name" + (", or continue the run with --resume" if unfinished else ""),
                )
            name = name or choose_dated_name(now.partition("T")[0], runs_by_name)
            self._db.execute(
                "INSERT INTO runs (name, command, suite, started) VALUES (?, ?, ?, ?)",
                (name, make_storable(command), make_storable(suite), started or now),
            )
            return self.get_run(name)

    def _find_resumable_run(self, name: str | None, suite: str) -> Run:
        """Return the unfinished run of this name, or the newest unfinished run of the suite without a name."""
        if name is None:
            unfinished = [run for run in self.list_runs() if not run.finished and run.suite == suite]
            if not unfinished:
                what = f"no unfinished run of {suite} to resume" if suite else "no unfinished run to resume"
                raise TesseraError(what, do="start a new run without --resume")
            return unfinished[-1]
        run = self.get_run(name)
        if run.finished:
            raise TesseraError("a finished run cannot be resumed", got=run.name, do="start a new run without --resume")
        return run

    def finish_run(self, run: Run, *, finished: str = "") -> Run:
        """Mark a run as finished, now or at the given time."""
        with self.transaction():
            self._db.execute("UPDATE runs SET finished = ? WHERE id = ?", (finished or _format_current_time(), run.id))
        return self.get_run(run.name)

    def list_runs(self) -> tuple[Run, ...]:
        """Return all runs, the oldest first."""
        with explain_sqlite_errors(self.path):
            columns = ("id", "name", "command", "suite", "started", "finished")
            rows = self._db.execute(f"SELECT {', '.join(columns)} FROM runs ORDER BY id").fetchall()
        return tuple(Run(**dict(zip(columns, row, strict=True))) for row in rows)

    def get_run(self, name: str) -> Run:
        """Return the run with this name; `latest` is the newest run, `latest~1` the run before it."""
        runs = self.list_runs()
        back = parse_latest(name)
        if back is not None and back < len(runs):
            return runs[-1 - back]
        for run in runs:
            if run.name == name:
                return run
        newest = [run.name for run in reversed(runs)]
        instead = f"the newest are {', '.join(newest[:3])}" if newest else "it has no runs yet"
        raise TesseraError(f"no such run in {self.path}", got=name, do=suggest_similar(name, newest, instead))

    def delete_run(self, run: Run) -> None:
        """Delete a run, its records, and environments that no other record uses."""
        with self.transaction():
            self._db.execute("DELETE FROM records WHERE run = ?", (run.id,))
            self._db.execute("DELETE FROM runs WHERE id = ?", (run.id,))
            self._db.execute("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM records)")

    def add(self, run: Run, record: Record) -> None:
        """Store a record durably; it replaces an earlier record of the same case in the run."""
        row = to_row(record)
        with self.transaction():
            environment = self._store_environment(row.environment)
            self._db.execute(
                "INSERT INTO records"
                " (run, key, feature, name, status, environment, body, sample_values, sample_others)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (run, key) DO UPDATE SET"
                " status = excluded.status, environment = excluded.environment, body = excluded.body,"
                " sample_values = excluded.sample_values, sample_others = excluded.sample_others",
                (run.id, row.key, row.feature, row.name, row.status, environment, row.body, row.values, row.others),
            )

    def add_all(self, run: Run, records: Iterable[Record]) -> None:
        """Store several records in one transaction."""
        with self.transaction():
            for record in records:
                self.add(run, record)

    def read_records(self, run: Run, feature: str | None = None, name_glob: str | None = None) -> Iterator[Record]:
        """Yield the records of a run in the order in which their cases were first added."""
        columns = "body, environment, sample_values, sample_others"
        for body, environment, values, others in self._iter_rows(columns, run, feature, name_glob):
            yield to_record(body, self._read_environment(environment), values, others)

    def read_observations(
        self, run: Run, feature: str | None = None, name_glob: str | None = None
    ) -> Iterator[Observation]:
        """Yield the observations of a run's records, which is much faster than reading the records."""
        for body, environment, values in self._iter_rows("body, environment, sample_values", run, feature, name_glob):
            yield to_observation(body, self._read_environment(environment), values)

    def count_statuses(self, run: Run) -> dict[Status, int]:
        """Return the number of records of a run by status."""
        query = "SELECT status, count(*) FROM records WHERE run = ? GROUP BY status ORDER BY status"
        with explain_sqlite_errors(self.path):
            return dict(self._db.execute(query, (run.id,)))

    def list_cases(self) -> list[tuple[str, str]]:
        """Return the distinct pairs of feature and case name in the store."""
        with explain_sqlite_errors(self.path):
            return self._db.execute("SELECT DISTINCT feature, name FROM records ORDER BY feature, name").fetchall()

    def read_history(self, metric: str, cases: Collection[tuple[str, str]]) -> Iterator[Reading]:
        """Yield one metric of all records of some cases (feature, name), run by run, without reading whole records."""
        if '"' in metric:
            raise TesseraError("invalid metric name", got=metric, allowed="names without double quotes")
        with explain_sqlite_errors(self.path):
            rows = self._db.execute(
                "SELECT id, run, key, status, environment, json_extract(body, '$.version'), json_extract(body, ?1)"
                " FROM records WHERE (feature, name) IN"
                " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2))"
                " ORDER BY run, id",
                (f'$.metrics."{metric}"', strict_json.dumps(list(cases))),
            ).fetchall()
        runs = {run.id: run for run in self.list_runs()}
        cases_by_key: dict[str, Case] = {}
        for number, run, key, status, environment, version, stored in rows:
            if key not in cases_by_key:
                (case,) = self._read_row("json_extract(body, '$.case')", number)
                cases_by_key[key] = Case(**strict_json.loads(case))
            yield Reading(
                case=cases_by_key[key],
                run=runs[run].name,
                started=runs[run].started,
                suite=runs[run].suite,
                status=status,
                version=version,
                fingerprint=str(self._read_environment(environment).get("fingerprint", "")),
                metric=None if stored is None else Metric(**strict_json.loads(stored)),
                launches=partial(self._read_launch_values, number),
            )

    def _read_launch_values(self, number: int) -> tuple[float, ...]:
        body, environment, values = self._read_row("body, environment, sample_values", number)
        return to_observation(body, self._read_environment(environment), values).figures

    def _read_row(self, columns: str, number: int) -> tuple[Any, ...]:
        with explain_sqlite_errors(self.path):
            row: tuple[Any, ...] = self._db.execute(f"SELECT {columns} FROM records WHERE id = ?", (number,)).fetchone()
        return row

    def _iter_rows(
        self, columns: str, run: Run, feature: str | None, name_glob: str | None
    ) -> Iterator[tuple[Any, ...]]:
        # One query per record, so that no cursor stays open while the caller works, and a run need not fit in memory.
        with explain_sqlite_errors(self.path):
            matches = self._db.execute(
                "SELECT id, name FROM records WHERE run = ?1 AND (?2 IS NULL OR feature = ?2) ORDER BY id",
                (run.id, feature),
            ).fetchall()
        for number, name in matches:
            if name_glob is not None and not fnmatchcase(name, name_glob):
                continue
            with explain_sqlite_errors(self.path):
                row = self._db.execute(f"SELECT {columns} FROM records WHERE id = ?", (number,)).fetchone()
            if row is not None:
                yield row

    def _store_environment(self, content: str) -> int:
        digest = hashlib.sha256(content.encode()).hexdigest()
        self._db.execute(
            "INSERT INTO environments (digest, content) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, content)
        )
        row = self._db.execute("SELECT id FROM environments WHERE digest = ?", (digest,)).fetchone()
        return int(row[0])

    def _read_environment(self, number: int) -> Mapping[str, Any]:
        if number not in self._environments:
            with explain_sqlite_errors(self.path):
                (content,) = self._db.execute("SELECT content FROM environments WHERE id = ?", (number,)).fetchone()
            self._environments[number] = strict_json.loads(content)
        return self._environments[number]


def _format_current_time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


_RUN_NAME_PATTERN = re.compile(r"\w[\w.+:@ -]{0,99}")
_LATEST_PATTERN = re.compile(r"latest(?:~(\d+))?")


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
