"""The SQLite tables of a store: creating, opening and checking its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tessera.errors import TesseraError

# Header of the SQLite file: application id and schema version.
APPLICATION_ID = int.from_bytes(b"Tess", "big")
STORE_SCHEMA_VERSION = 1

# `body` is the record as JSON without samples and environment; the columns before it repeat the searched fields. The
# blobs come last, so that SQLite reads them only if they are selected. Ids of runs and environments are never reused,
# so that a reader may cache them.
_CREATE_TABLES_SQL = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL,
    suite TEXT NOT NULL,
    started TEXT NOT NULL,
    finished TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE environments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest TEXT NOT NULL UNIQUE,
    content TEXT NOT NULL
) STRICT;
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    key TEXT NOT NULL,
    feature TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments (id),
    body TEXT NOT NULL,
    sample_values BLOB NOT NULL,
    sample_others BLOB NOT NULL,
    UNIQUE (run, key)
) STRICT;
CREATE INDEX records_by_environment ON records (environment);
"""


def open_database(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open the file of a store; a missing file is created with `create`, otherwise it is an error."""
    if path.is_dir():
        raise TesseraError("the path of the store is a directory", got=str(path))
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TesseraError(f"cannot create the results file: {error.strerror}", got=str(path)) from None
    elif not path.exists():
        do = "run a suite first, or name the file with --store or TESSERA_STORE"
        raise TesseraError("the store does not exist", got=str(path), do=do)
    with explain_sqlite_errors(path):
        db = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            _prepare_database(db, path, create=create)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            db.close()
            raise
    return db


def _prepare_database(db: sqlite3.Connection, path: Path, *, create: bool) -> None:
    """Check that an open file is a store; create its tables if it is empty and `create` is set."""
    application = _query_integer(db, "PRAGMA application_id")
    version = _query_integer(db, "PRAGMA user_version")
    # A process killed during creation leaves a file without tables and application id, which counts as empty.
    empty = application == 0 and not _query_integer(db, "SELECT count(*) FROM sqlite_master")
    if empty and create:
        db.execute("PRAGMA journal_mode = WAL")
        _create_tables(db)
    elif application != APPLICATION_ID:
        raise _make_foreign_file_error(path)
    elif version > STORE_SCHEMA_VERSION:
        raise TesseraError(
            f"the store {path} has a newer schema",
            got=version,
            allowed=f"up to {STORE_SCHEMA_VERSION}",
            do="upgrade tessera",
        )


@contextmanager
def explain_sqlite_errors(path: Path) -> Iterator[None]:
    """Convert SQLite errors to a `TesseraError` with advice in one line."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "not a database" in text:
            raise _make_foreign_file_error(path) from None
        advice = next((advice for sign, advice in _ADVICE_BY_ERROR_TEXT.items() if sign in text), "")
        raise TesseraError(f"the store {path} cannot be used: {text}", do=advice) from error


_ADVICE_BY_ERROR_TEXT = {
    "full": "free space on the disk, then continue with --resume",
    "readonly": "the store must be writable: copy it, or name another with --store",
    "unable to open": "the file and its directory must be writable",
    "locked": "another command is writing to it: wait, or name another with --store",
    "malformed": "the file is damaged: restore it from an export",
    "FOREIGN KEY": "another process deleted the run",
}


def _make_foreign_file_error(path: Path) -> TesseraError:
    return TesseraError(f"{path} is not a Tessera store", do="name another file with --store")


def _create_tables(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _query_integer(db, "SELECT count(*) FROM sqlite_master"):  # another process may have been faster
            for statement in _CREATE_TABLES_SQL.strip().split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {STORE_SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has already rolled back if the disk is full
            db.execute("ROLLBACK")
        raise


def _query_integer(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
