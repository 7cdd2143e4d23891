"""The SQLite file of a store: creating, opening, migrating and checking it.

A store may come from another person. Its schema must consist of the tables and indexes of a store and nothing else, so
that no view, trigger or generated column of the file can run; statements are bounded in time and memory.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tessera.errors import TesseraError
from tessera.results.checksums import compute_record_checksum, compute_run_checksum
from tessera.results.database import DamagedStore, Row
from tessera.results.schema import (
    APPLICATION_ID,
    CREATE_TABLES_SQL,
    INDEX_NAMES,
    INDEXES_SQL,
    NEW_COLUMNS,
    RECORDS_SQL,
    STORE_SCHEMA_VERSION,
    TABLE_NAMES,
    list_statements,
)
from tessera.results.writers import describe_writer, is_writing

LOCK_SECONDS = 30.0  # time to wait for another writer
STATEMENT_SECONDS = 300.0  # time limit of a statement on a file that may be damaged or hostile
MAX_VALUE_BYTES = 512 << 20  # largest text or blob
_STEPS_BETWEEN_CHECKS = 1_000_000


class SqliteDatabase:
    """A store in one SQLite file. A file that cannot be written is opened read-only."""

    serializes_writers = True

    def __init__(self, path: Path, *, create: bool) -> None:
        self.label = str(path)
        self._path = path
        self._deadline = time.monotonic() + STATEMENT_SECONDS
        _check_path(path, create=create)
        self.read_only = not create and not _is_writable(path)
        with self._explain_errors():
            self._db = self._connect()
            try:
                self.schema_version = self._prepare(create=create)
            except BaseException:
                self._db.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        if not self.read_only:
            return self._configure(sqlite3.connect(self._path, timeout=LOCK_SECONDS, isolation_level=None))
        location = "file:" + quote(str(self._path.absolute()))
        db = self._configure(sqlite3.connect(f"{location}?mode=ro", uri=True, isolation_level=None))
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:  # the shared-memory file of write-ahead mode cannot be created
            db.close()
            log = self._path.with_name(self._path.name + "-wal")
            if log.exists() and log.stat().st_size:
                raise TesseraError(
                    f"the store {self._path} has changes that are not merged, and its directory is read-only",
                    do="copy the store with its -wal file to a writable directory",
                ) from None
            db = self._configure(sqlite3.connect(f"{location}?mode=ro&immutable=1", uri=True, isolation_level=None))
        return db

    def _configure(self, db: sqlite3.Connection) -> sqlite3.Connection:
        db.text_factory = _decode_text
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.set_progress_handler(self._is_overdue, _STEPS_BETWEEN_CHECKS)
        return db

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._deadline

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        self._deadline = time.monotonic() + STATEMENT_SECONDS
        with self._explain_errors():
            return self._db.execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self.read_only:
            raise TesseraError(f"the store {self.label} is read-only", do="copy it, or name another with --store")
        with self._explain_errors(), self._immediate():
            yield

    def lock_runs(self) -> None:
        assert self._db.in_transaction, "a transaction excludes all other writers"

    def describe_writer(self) -> str:
        return describe_writer()

    def is_writing(self, writer: str) -> bool:
        return is_writing(writer)

    def reconnect(self) -> None:
        raise AssertionError("a file cannot be unavailable")

    def check(self) -> Iterator[str]:
        for (line,) in self.query("PRAGMA integrity_check(20)"):
            if line != "ok":
                yield str(line).replace("\n", "; ")
        for table, row, parent, _ in self.query("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} refers to a missing row of {parent}"

    def vacuum(self) -> None:
        with self._explain_errors():
            self._deadline = float("inf")
            self._db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 1)  # the new file
            self._db.execute("VACUUM")
            self._db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._db.close()

    def _prepare(self, *, create: bool) -> int:
        """Check that the file is a store; create or migrate its tables; return the version of its schema."""
        # Other processes may create the same store at this moment: write-ahead mode does not wait for their locks.
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                version = self._create_or_migrate(create=create)
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        self._check_schema(version)
        if not self.read_only:
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
        return version

    def _create_or_migrate(self, *, create: bool) -> int:
        application, version, count = self._read_header()
        # A process killed during creation leaves a file without tables and application id, which counts as empty.
        if create and application == 0 and not count:
            self._db.execute("PRAGMA journal_mode = WAL")
            with self._immediate():
                if not self._read_header()[2]:  # another process may have been faster
                    self._create_tables()
            return STORE_SCHEMA_VERSION
        if application != APPLICATION_ID:
            raise _make_foreign_file_error(self._path)
        if version > STORE_SCHEMA_VERSION:
            raise TesseraError(
                f"the store {self._path} has a newer schema",
                got=version,
                allowed=f"up to {STORE_SCHEMA_VERSION}",
                do="upgrade tessera",
            )
        if version < STORE_SCHEMA_VERSION and not self.read_only:
            with self._immediate():
                if self._read_header()[1] < STORE_SCHEMA_VERSION:
                    self._migrate_from_1()
            return STORE_SCHEMA_VERSION
        return version

    @contextmanager
    def _immediate(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite has already rolled back if the disk is full
                self._db.execute("ROLLBACK")
            raise

    def _read_header(self) -> tuple[int, int, int]:
        """Return application id, schema version and the number of tables and indexes, from one state of the file."""
        (header,) = self._db.execute(
            "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),"
            " (SELECT count(*) FROM sqlite_master)"
        ).fetchall()
        return int(header[0]), int(header[1]), int(header[2])

    def _create_tables(self) -> None:
        for statement in list_statements(CREATE_TABLES_SQL):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {STORE_SCHEMA_VERSION}")

    def _migrate_from_1(self) -> None:
        """Add checksums, the writer of a run and the index of cases; the checksums are those of the present content."""
        db = self._db
        self._check_schema(1)
        db.create_function("record_checksum", 9, compute_record_checksum, deterministic=True)
        db.create_function("run_checksum", 5, compute_run_checksum, deterministic=True)
        db.execute("ALTER TABLE runs ADD COLUMN writer TEXT NOT NULL DEFAULT ''")
        db.execute("ALTER TABLE runs ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
        db.execute("UPDATE runs SET checksum = run_checksum(name, command, suite, started, finished)")
        db.execute("ALTER TABLE records RENAME TO records_1")
        db.execute("DROP INDEX records_by_environment")
        for statement in list_statements(RECORDS_SQL):
            db.execute(statement)
        db.execute(
            "INSERT INTO records SELECT r.id, r.run, r.key, r.feature, r.name, r.status, r.environment,"
            " record_checksum(u.name, r.key, r.feature, r.name, r.status, e.digest, r.body, r.sample_values,"
            " r.sample_others), r.body, r.sample_values, r.sample_others"
            " FROM records_1 r JOIN runs u ON u.id = r.run JOIN environments e ON e.id = r.environment ORDER BY r.id"
        )
        db.execute("DROP TABLE records_1")
        for statement in list_statements(INDEXES_SQL):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {STORE_SCHEMA_VERSION}")

    def _check_schema(self, version: int) -> None:
        """Raise an error for a file with other tables or columns, or with views, triggers or generated columns."""
        allowed = {
            *(("table", name) for name in (*TABLE_NAMES, "sqlite_sequence")),
            *(("index", name) for name in INDEX_NAMES),
        }
        entries = self._db.execute("SELECT type, name FROM sqlite_master").fetchall()
        strange = [
            name
            for kind, name in entries
            if (kind, name) not in allowed and not (kind == "index" and str(name).startswith("sqlite_autoindex_"))
        ]
        tables = {name for kind, name in entries if kind == "table"}
        if strange:
            raise TesseraError(
                f"{self._path} is not a Tessera store: unexpected object in the schema", got=str(strange[0])
            )
        if missing := [name for name in TABLE_NAMES if name not in tables]:
            raise TesseraError(f"{self._path} is not a Tessera store: missing table {missing[0]}")
        expected = _list_expected_columns()
        for table in TABLE_NAMES:
            columns = [column for column in expected[table] if version > 1 or column[:2] not in NEW_COLUMNS]
            if _list_columns(self._db, table) != columns:
                raise TesseraError(f"{self._path} is not a Tessera store: unexpected columns in table {table}")

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Convert SQLite errors to a `TesseraError` with advice in one line."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            if "not a database" in text:
                raise _make_foreign_file_error(self._path) from None
            advice = next((advice for sign, advice in _ADVICE_BY_ERROR_TEXT.items() if sign in text), "")
            kind = DamagedStore if "malformed" in text or "disk I/O" in text else TesseraError
            raise kind(f"the store {self._path} cannot be used: {text}", do=advice) from error


def _list_columns(db: sqlite3.Connection, table: str) -> list[Row]:
    """Return table, name, type, NOT NULL, key and kind of the columns of a strict table; [] for any other table."""
    if [row[5] for row in db.execute(f"PRAGMA main.table_list({table})")] != [1]:
        return []
    return [(table, *row[1:4], *row[5:7]) for row in db.execute(f"PRAGMA main.table_xinfo({table})")]


@lru_cache(maxsize=1)
def _list_expected_columns() -> dict[str, list[Row]]:
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in list_statements(CREATE_TABLES_SQL):
            db.execute(statement)
        return {table: _list_columns(db, table) for table in TABLE_NAMES}


def _decode_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")  # damaged text is found by its checksum


def _check_path(path: Path, *, create: bool) -> None:
    if path.is_dir():
        raise TesseraError("the path of the store is a directory", got=str(path))
    if path.exists() and not path.is_file():
        raise TesseraError("the store is not a regular file", got=str(path))
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TesseraError(f"cannot create the results file: {error.strerror}", got=str(path)) from None
    elif not path.exists():
        do = "run a suite first, or name the file with --store or TESSERA_STORE"
        raise TesseraError("the store does not exist", got=str(path), do=do)


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


_ADVICE_BY_ERROR_TEXT = {
    "full": "free space on the disk, then continue with --resume",
    "readonly": "the store must be writable: copy it, or name another with --store",
    "unable to open": "the file and its directory must be writable",
    "locked": "another command is writing to it: wait, or name another with --store",
    "malformed": "the file is damaged: `tessera store repair NEW` copies what can be read",
    "interrupted": "the file is damaged: `tessera store repair NEW` copies what can be read",
    "FOREIGN KEY": "another process deleted the run",
}


def _make_foreign_file_error(path: Path) -> TesseraError:
    return TesseraError(f"{path} is not a Tessera store", do="name another file with --store")
