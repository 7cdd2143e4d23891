"""The tables of a store's file, how it is opened, and whether it is a store that this version can read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tessera.errors import TesseraError

# Written into the header of the file: the word that makes it ours, and the version of its tables.
APPLICATION = int.from_bytes(b"Tess", "big")
STORE_SCHEMA = 1

# `body` is the record as JSON without samples and environment; the columns before it repeat what is
# searched for. The blobs come last: SQLite then reads them only where they are asked for. Numbers of runs
# and environments are never used twice, so that a reader may keep what it has read.
_TABLES = """
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
    """Open a store's file; one that does not exist is made where that is wished, and otherwise an error."""
    if path.is_dir():
        raise TesseraError("a store is a file, and this is a directory", got=str(path))
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TesseraError(f"cannot make a store here: {error.strerror}", got=str(path)) from None
    elif not path.exists():
        do = "run a suite first, or say where it is with --store or TESSERA_STORE"
        raise TesseraError("there is no store here", got=str(path), do=do)
    with explained(path):
        db = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            _prepare(db, path, create=create)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            db.close()
            raise
    return db


def _prepare(db: sqlite3.Connection, path: Path, *, create: bool) -> None:
    """Check that an open file is a store, or make it one where it is still empty and that is wished."""
    application = _number(db, "PRAGMA application_id")
    version = _number(db, "PRAGMA user_version")
    # A kill during creation leaves a file without tables and without our word: it is empty, not foreign.
    empty = application == 0 and not _number(db, "SELECT count(*) FROM sqlite_master")
    if empty and create:
        db.execute("PRAGMA journal_mode = WAL")
        _create(db)
    elif application != APPLICATION:
        raise _not_a_store(path)
    elif version > STORE_SCHEMA:
        raise TesseraError(
            f"the store {path} is of a newer schema",
            got=version,
            allowed=f"up to {STORE_SCHEMA}",
            do="upgrade tessera",
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite into one line that says what to do about this store."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "not a database" in text:
            raise _not_a_store(path) from None
        advice = next((advice for sign, advice in _ADVICE.items() if sign in text), "")
        raise TesseraError(f"the store {path} cannot be used: {text}", do=advice) from error


_ADVICE = {
    "full": "make room on the disk, then go on with --resume",
    "readonly": "it must be writable: copy it, or give another with --store",
    "unable to open": "the file and its directory must be writable",
    "locked": "another command is writing to it: wait, or give another with --store",
    "malformed": "the file is damaged: restore it from an export",
    "FOREIGN KEY": "the run was deleted meanwhile",
}


def _not_a_store(path: Path) -> TesseraError:
    return TesseraError(f"{path} is not a store of tessera", do="give another file with --store")


def _create(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _number(db, "SELECT count(*) FROM sqlite_master"):  # another process may have been first
            for statement in _TABLES.strip().split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {STORE_SCHEMA}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back when the disk is full
            db.execute("ROLLBACK")
        raise


def _number(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
