"""The store: all runs and their records in one database, which stays valid if a writer is killed at any time.

Only the parent process writes. Each record is one transaction, synced before `add` returns: an added record survives a
kill or a power failure, and no record is ever partly written. Checksums are verified on reading: a damaged record is
skipped with a warning, and is never part of a result.
"""

from __future__ import annotations

import hashlib
import os
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from tessera.errors import TesseraError, suggest_similar
from tessera.machine.catalogue import get_data_home
from tessera.measure.environment import DEVICE_FIELD
from tessera.results import strict_json
from tessera.results.checksums import compute_run_checksum
from tessera.results.copying import choose_copy_name, copy_runs, find_counterpart
from tessera.results.database import DamagedStore, Database, StoreUnavailable
from tessera.results.observation import Observation, Reading, describe_machine
from tessera.results.postgres_database import PostgresDatabase, is_database_url, mask_address, mask_secrets
from tessera.results.record import Case, Record, Status
from tessera.results.record_rows import (
    RecordRow,
    compute_digest,
    make_storable,
    to_metric_value,
    to_observation,
    to_record,
    to_row,
)
from tessera.results.runs import Run as Run
from tessera.results.runs import check_run_name, choose_dated_name
from tessera.results.runs import parse_latest as parse_latest
from tessera.results.sqlite_database import SqliteDatabase
from tessera.results.writers import get_process_label
from tessera.validation import InvalidValue, check_value

_T = TypeVar("_T")

ROWS_PER_QUERY = 100
RECORD_COLUMNS = "id, run, key, feature, name, status, environment, checksum, body"


def get_default_store() -> str:
    """Return the file or address in the environment variable `TESSERA_STORE`; default: `.tessera/results.sqlite`."""
    return os.environ.get("TESSERA_STORE") or str(Path(".tessera") / "results.sqlite")


def get_default_store_path() -> Path:
    """Return the path of the default store; of a database, the path that is used without one."""
    store = get_default_store()
    return Path(".tessera") / "results.sqlite" if is_database_url(store) else Path(store)


def get_spool_path(url: str) -> Path:
    """Return the local file that holds the records of a database until they are sent."""
    digest = hashlib.sha256(mask_address(url).encode()).hexdigest()[:16]
    return get_data_home() / "spool" / f"{digest}.sqlite"


class SpoolWarning(UserWarning):
    """The warning that records are kept in a local file, because the server of the store does not answer."""


class DamagedRecordsWarning(UserWarning):
    """The warning that damaged records of a store were skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRecord:
    """A record that was skipped: its run, its case as far as it can be read, and the reason."""

    id: int
    run: str
    key: str
    reason: str


class Store:
    """Runs and their records in one SQLite file or PostgreSQL database; use it as a context manager.

    `path` is a file or `postgresql://USER@HOST/DATABASE`. With `create=False` a missing file is an error, and a file
    that cannot be written is opened for reading. With a database and `create=True`, every record is first written to a
    local file, the spool: if the server does not answer, records stay there and are sent when the store is next opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        location = os.fspath(path) if path is not None else get_default_store()
        self.path = mask_address(location) if is_database_url(location) else Path(location)
        self._environments: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self._damaged: dict[int, DamagedRecord] = {}
        self._written_runs: set[int] = set()
        self._spool: Store | None = None
        self._spooled_runs: dict[int, Run] = {}
        self._unsent = False
        self._db: Database
        if isinstance(self.path, Path):
            self._db = SqliteDatabase(self.path, create=create)
        elif create:
            self._open_with_spool(location)
        else:
            self._db = PostgresDatabase(location, create=False)
        _OPEN_STORES.add(self)

    def _open_with_spool(self, url: str) -> None:
        """Open a database and its spool, and send what is in the spool; if the server is away, use the spool alone."""
        path = get_spool_path(url)
        try:
            self._db = PostgresDatabase(url, create=True)
        except StoreUnavailable as error:
            self._db = SqliteDatabase(path, create=True)
            warnings.warn(
                f"{error}; records are kept in {path} and sent when the store is next written",
                SpoolWarning,
                stacklevel=4,
            )
            return
        self._spool = Store(path)
        used = {number for store in _OPEN_STORES for number in store._list_spooled_ids(path)}
        try:
            count = copy_runs(self._spool, self, [run for run in self._spool.list_runs() if run.id not in used])
        except StoreUnavailable:
            return  # the server went away again; nothing is deleted
        except TesseraError as error:
            warnings.warn(f"the records in {path} cannot be sent: {error}", SpoolWarning, stacklevel=4)
            return
        for run in count.complete:
            self._spool.delete_run(run)

    def _list_spooled_ids(self, spool: Path) -> set[int]:
        """Return the ids of the runs in a spool that this store is writing."""
        if self._spool is not None and self._spool.path == spool:
            return {run.id for run in self._spooled_runs.values()}
        return self._written_runs if self._db.label == str(spool) else set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, and warn once about damaged records that were skipped."""
        if self._written_runs and not self._unsent and not self._db.in_transaction:
            with suppress(TesseraError), self.transaction():
                self._db.query("UPDATE runs SET writer = '' WHERE writer = ?", (self._db.describe_writer(),))
        _OPEN_STORES.discard(self)
        self._db.close()
        self._close_spool()
        if self._damaged:
            first = next(iter(self._damaged.values()))
            warnings.warn(
                f"{len(self._damaged)} damaged records of {self._db.label} were skipped: {first.key} of run "
                f"{first.run} ({first.reason})" + (", …" if len(self._damaged) > 1 else ""),
                DamagedRecordsWarning,
                stacklevel=2,
            )
            self._damaged = {}

    def _close_spool(self) -> None:
        """Delete the runs of the spool that were sent completely; its file stays, for other processes may use it."""
        if self._spool is None:
            return
        spool, self._spool = self._spool, None
        if not self._unsent:
            for run in self._spooled_runs.values():
                spool.delete_run(run)
        elif self._spooled_runs:
            warnings.warn(
                f"records of {self.path} were not sent; they are kept in {spool.path} and sent when the store is next "
                "written",
                SpoolWarning,
                stacklevel=3,
            )
        spool.close()

    @property
    def damaged(self) -> tuple[DamagedRecord, ...]:
        """The damaged records that were skipped so far."""
        return tuple(self._damaged.values())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all changes in the block atomically; a nested transaction is part of the outer transaction."""
        if self._db.in_transaction:
            yield
            return
        with self._db.transaction():
            yield

    def start_run(
        self, name: str | None = None, *, command: str = "", suite: str = "", resume: bool = False, started: str = ""
    ) -> Run:
        """Start a run, or with `resume` continue an unfinished run that no other process is writing.

        Without a name, a new run is named after the date, and `resume` continues the newest unfinished run of the
        suite. `started` defaults to now.
        """
        if name is not None and not resume:
            check_run_name(name)
        now = _format_current_time()
        command = mask_secrets(command)
        with self.transaction():
            self._db.lock_runs()
            if resume:
                run = self._find_resumable_run(name, suite)
            else:
                run = self._insert_run(
                    name, now, make_storable(command), make_storable(suite), make_storable(started) or now
                )
            self._claim_run(run)
            return run

    def _claim_run(self, run: Run) -> None:
        """Register this process as the writer of a run."""
        with self.transaction():
            self._db.query("UPDATE runs SET writer = ? WHERE id = ?", (self._db.describe_writer(), run.id))
        self._written_runs.add(run.id)

    def _get_spooled_run(self, run: Run) -> Run:
        """Return the run in the spool that holds the records of a run."""
        assert self._spool is not None
        if run.id not in self._spooled_runs:
            if spooled := find_counterpart(self._spool, run):  # left by an earlier process of the same run
                self._spool._claim_run(spooled)
            else:
                name = choose_copy_name(self._spool, run)
                spooled = self._spool.start_run(name, command=run.command, suite=run.suite, started=run.started)
            self._spooled_runs[run.id] = spooled
        return self._spooled_runs[run.id]

    def _insert_run(self, name: str | None, now: str, command: str, suite: str, started: str) -> Run:
        runs_by_name = {run.name: run for run in self.list_runs()}
        if name in runs_by_name:
            unfinished = not runs_by_name[name].finished
            raise TesseraError(
                f"{'an unfinished' if unfinished else 'a finished'} run of this name exists",
                got=name,
                do="choose another name" + (", or continue the run with --resume" if unfinished else ""),
            )
        name = name or choose_dated_name(now.partition("T")[0], runs_by_name)
        checksum = compute_run_checksum(name, command, suite, started, "")
        self._db.query(
            "INSERT INTO runs (name, command, suite, started, checksum) VALUES (?, ?, ?, ?, ?)",
            (name, command, suite, started, checksum),
        )
        return self.get_run(name)

    def _find_resumable_run(self, name: str | None, suite: str) -> Run:
        """Return the unfinished run of this name, or the newest unfinished run of the suite without a name."""
        if name is None:
            unfinished = [run for run in self.list_runs() if not run.finished and run.suite == suite]
            if not unfinished:
                what = f"no unfinished run of {suite} to resume" if suite else "no unfinished run to resume"
                raise TesseraError(what, do="start a new run without --resume")
            run = unfinished[-1]
        else:
            run = self.get_run(name)
        if run.finished:
            raise TesseraError("a finished run cannot be resumed", got=run.name, do="start a new run without --resume")
        if process := self.find_writer(run):
            raise TesseraError(f"{process} is writing the run", got=run.name, do="wait until it ends, or end it")
        return run

    def find_writer(self, run: Run) -> str:
        """Return host and process id of another process that is writing a run; empty if there is none."""
        rows = self._db.query("SELECT writer FROM runs WHERE id = ?", (run.id,)) if self._has_checksums else []
        return get_process_label(rows[0][0]) if rows and self._db.is_writing(rows[0][0]) else ""

    def release_run(self, run: Run) -> None:
        """Let other processes continue an unfinished run."""
        with self.transaction():
            self._db.query("UPDATE runs SET writer = '' WHERE id = ?", (run.id,))

    def finish_run(self, run: Run, *, finished: str = "") -> Run:
        """Mark a run as finished, now or at the given time."""
        finished = make_storable(finished) or _format_current_time()
        if self._spool is None or self._db.in_transaction:  # a lost transaction cannot be continued
            return self._update_finished(run, finished)
        if not self._unsent:
            try:
                return self._retry(partial(self._update_finished, run, finished))
            except StoreUnavailable:
                self._unsent = True
        return self._spool.finish_run(self._get_spooled_run(run), finished=finished)

    def _retry(self, action: Callable[[], _T]) -> _T:
        """Perform a transaction, and once more with a new connection if the connection is lost."""
        try:
            return action()
        except StoreUnavailable:
            self._db.reconnect()
            return action()

    def _update_finished(self, run: Run, finished: str) -> Run:
        with self.transaction():
            self._db.query(
                "UPDATE runs SET finished = ?, writer = '', checksum = ? WHERE id = ?",
                (finished, compute_run_checksum(run.name, run.command, run.suite, run.started, finished), run.id),
            )
        return self.get_run(run.name)

    @property
    def _has_checksums(self) -> bool:
        """Whether the store has schema 2; a read-only store of schema 1 has no checksums."""
        return self._db.schema_version >= 2

    def list_runs(self) -> tuple[Run, ...]:
        """Return all runs, the oldest first."""
        checksum = "checksum" if self._has_checksums else "NULL"
        rows = self._db.query(f"SELECT id, name, command, suite, started, finished, {checksum} FROM runs ORDER BY id")
        return tuple(self._make_run(*row) for row in rows)

    def _make_run(self, number: int, *columns: Any) -> Run:
        *texts, checksum = columns
        name, command, suite, started, finished = map(str, texts)
        if checksum is not None and compute_run_checksum(name, command, suite, started, finished) != checksum:
            self._note_damage(-number, name, "its description", "the checksum does not match")
        return Run(id=number, name=name, command=command, suite=suite, started=started, finished=finished)

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
        raise TesseraError(f"no such run in {self._db.label}", got=name, do=suggest_similar(name, newest, instead))

    def delete_run(self, run: Run) -> None:
        """Delete a run, its records, and environments that no other record uses."""
        with self.transaction():
            self._db.query("DELETE FROM records WHERE run = ?", (run.id,))
            self._db.query("DELETE FROM runs WHERE id = ?", (run.id,))
            if self._db.serializes_writers:  # otherwise another process may be about to use an environment
                self._db.query("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM records)")

    def check_structure(self) -> Iterator[str]:
        """Yield a line for every structural fault of the database."""
        return self._db.check()

    def vacuum(self) -> None:
        """Return unused space to the file system."""
        self._db.vacuum()

    def add(self, run: Run, record: Record) -> None:
        """Store a record durably; it replaces an earlier record of the same case in the run."""
        self.add_all(run, [record])

    def add_all(self, run: Run, records: Iterable[Record]) -> None:
        """Store several records in one transaction."""
        if self._spool is None or self._db.in_transaction:
            self._insert_all(run, records)
            return
        records = list(records)
        self._spool.add_all(self._get_spooled_run(run), records)
        if self._unsent:
            return
        try:
            self._retry(partial(self._insert_all, run, records))
        except BaseException as error:
            self._unsent = True  # the spool keeps the records
            if not isinstance(error, StoreUnavailable):
                raise

    def _insert_all(self, run: Run, records: Iterable[Record]) -> None:
        with self.transaction():
            for record in records:
                self._insert(run, record)

    def _insert(self, run: Run, record: Record) -> None:
        row = to_row(record, run.name)
        environment = self._store_environment(row)
        self._db.query(
            "INSERT INTO records"
            " (run, key, feature, name, status, environment, checksum, body, sample_values, sample_others)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (run, key) DO UPDATE SET"
            " status = excluded.status, environment = excluded.environment, checksum = excluded.checksum,"
            " body = excluded.body, sample_values = excluded.sample_values, sample_others = excluded.sample_others",
            (
                *(run.id, row.key, row.feature, row.name, row.status, environment, row.compute_checksum()),
                *(row.body, row.values, row.others),
            ),
        )

    def read_records(self, run: Run, feature: str | None = None, name_glob: str | None = None) -> Iterator[Record]:
        """Yield the records of a run in the order in which their cases were first added; damaged ones are skipped."""
        if self._unsent and self._spool is not None:
            yield from self._spool.read_records(self._get_spooled_run(run), feature, name_glob)
            return
        for stored in self._iter_rows(run, ("sample_values", "sample_others"), feature, name_glob):
            with self._skip_damaged(stored, run):
                row, environment = self._verify_row(stored, run.name)
                record = to_record(row, environment)
                yield record

    def read_observations(
        self, run: Run, feature: str | None = None, name_glob: str | None = None
    ) -> Iterator[Observation]:
        """Yield the observations of a run's records, which is much faster than reading the records."""
        for stored in self._iter_rows(run, ("sample_values",), feature, name_glob):
            with self._skip_damaged(stored, run):
                row, environment = self._verify_row(stored, run.name)
                observation = to_observation(row, environment)
                yield observation

    def count_statuses(self, run: Run) -> dict[Status, int]:
        """Return the number of records of a run by status."""
        if self._unsent and self._spool is not None:
            return self._spool.count_statuses(self._get_spooled_run(run))
        query = "SELECT status, count(*) FROM records WHERE run = ? GROUP BY status ORDER BY status"
        return dict(self._db.query(query, (run.id,)))

    def list_cases(self) -> list[tuple[str, str]]:
        """Return the distinct pairs of feature and case name in the store."""
        rows = self._db.query("SELECT DISTINCT feature, name FROM records ORDER BY feature, name")
        return [(str(feature), str(name)) for feature, name in rows]

    def read_history(self, metric: str, cases: Collection[tuple[str, str]]) -> Iterator[Reading]:
        """Yield one metric of all records of some cases (feature, name), run by run, without reading samples."""
        runs = {run.id: run for run in self.list_runs()}
        rows = [row for feature, name in cases for row in self._read_case_rows(feature, name)]
        known_cases: dict[str, Case] = {}
        for stored in sorted(rows, key=lambda row: row[1::-1]):
            run = runs.get(stored[1])
            if run is None:  # another process has added it since
                continue
            with self._skip_damaged(stored, run):
                row, environment = self._verify_row(stored, run.name)
                value = to_metric_value(row, metric)
                reading = Reading(
                    case=known_cases.setdefault(row.key, value.case),
                    run=run.name,
                    started=run.started,
                    suite=run.suite,
                    status=row.status,  # type: ignore[arg-type]
                    version=value.version,
                    fingerprint=str(environment.get("fingerprint", "")),
                    device=str(environment.get(DEVICE_FIELD, "")),
                    metric=value.metric,
                    machine=describe_machine(environment),
                    launches=partial(self._read_launch_values, run, stored[0]),
                )
                yield reading

    def _read_case_rows(self, feature: str, name: str) -> list[tuple[Any, ...]]:
        columns = self._format_columns(())
        return self._db.query(f"SELECT {columns} FROM records WHERE feature = ? AND name = ?", (feature, name))

    def _read_launch_values(self, run: Run, number: int) -> tuple[float, ...]:
        for stored in self._read_rows([number], ("sample_values",)):
            with self._skip_damaged(stored, run):
                return to_observation(*self._verify_row(stored, run.name)).figures
        return ()

    def _format_columns(self, samples: Sequence[str]) -> str:
        columns = RECORD_COLUMNS if self._has_checksums else RECORD_COLUMNS.replace("checksum", "NULL")
        return ", ".join((columns, *samples))

    def _iter_rows(
        self, run: Run, samples: Sequence[str], feature: str | None, name_glob: str | None
    ) -> Iterator[tuple[Any, ...]]:
        # No cursor stays open while the caller works, and a run need not fit in memory.
        query = "SELECT id, name FROM records WHERE run = ?" + (" AND feature = ?" if feature else "") + " ORDER BY id"
        try:
            rows = self._db.query(query, (run.id, feature) if feature else (run.id,))
        except DamagedStore as error:
            self._note_damage(-run.id, run.name, "the list of its records", str(error))
            return
        numbers = [number for number, name in rows if name_glob is None or fnmatchcase(str(name), name_glob)]
        for start in range(0, len(numbers), ROWS_PER_QUERY):
            chunk = numbers[start : start + ROWS_PER_QUERY]
            try:
                yield from self._read_rows(chunk, samples)
            except DamagedStore:  # read the rows one by one, without the damaged ones
                for number in chunk:
                    try:
                        yield from self._read_rows([number], samples)
                    except DamagedStore as error:
                        self._note_damage(number, run.name, "", str(error))

    def _read_rows(self, numbers: Sequence[int], samples: Sequence[str]) -> list[tuple[Any, ...]]:
        marks = ", ".join("?" for _ in numbers)
        query = f"SELECT {self._format_columns(samples)} FROM records WHERE id IN ({marks}) ORDER BY id"
        return self._db.query(query, numbers)

    def _verify_row(self, stored: Sequence[Any], run: str) -> tuple[RecordRow, Mapping[str, Any]]:
        """Return a stored row and its environment; raise `DamagedStore` if a checksum does not match."""
        _, _, key, feature, name, status, number, checksum, body, *samples = stored
        blobs = (*samples, checksum) if self._has_checksums else samples
        if not all(isinstance(text, str) for text in (key, feature, name, status, body)) or not all(
            isinstance(blob, bytes) for blob in blobs
        ):
            raise DamagedStore("a column has the wrong type")
        digest, environment = self._read_environment(number)
        row = RecordRow(
            run=run,
            key=key,
            feature=feature,
            name=name,
            status=status,
            digest=digest,
            body=body,
            values=samples[0] if samples else None,
            others=samples[1] if len(samples) > 1 else None,
        )
        if self._has_checksums:
            row.verify(checksum)
        return row, environment

    @contextmanager
    def _skip_damaged(self, stored: Sequence[Any], run: Run) -> Iterator[None]:
        """Note a damaged or invalid record, and continue after it."""
        try:
            yield
        except (DamagedStore, InvalidValue) as error:
            self._note_damage(stored[0], run.name, str(stored[2]), str(error))

    def _note_damage(self, number: int, run: str, key: str, reason: str) -> None:
        self._damaged[number] = DamagedRecord(id=number, run=run, key=key or f"record {number}", reason=reason)

    def _store_environment(self, row: RecordRow) -> int:
        self._db.query(
            "INSERT INTO environments (digest, content) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (row.digest, row.environment),
        )
        return int(self._db.query("SELECT id FROM environments WHERE digest = ?", (row.digest,))[0][0])

    def _read_environment(self, number: int) -> tuple[str, Mapping[str, Any]]:
        """Return the digest and the content of an environment; raise `DamagedStore` if they do not match."""
        if number not in self._environments:
            rows = self._db.query("SELECT digest, content FROM environments WHERE id = ?", (number,))
            if not rows or not all(isinstance(text, str) for text in rows[0]):
                raise DamagedStore("its environment is missing")
            ((digest, content),) = rows
            if compute_digest(content) != digest:
                raise DamagedStore("the checksum of its environment does not match")
            try:
                environment = strict_json.loads(content)
            except ValueError as error:
                raise DamagedStore(f"its environment is not JSON: {error}") from None
            check_value(Mapping[str, Any], environment, "invalid environment")
            self._environments[number] = digest, environment
        return self._environments[number]


_OPEN_STORES: weakref.WeakSet[Store] = weakref.WeakSet()  # of this process


def _format_current_time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
