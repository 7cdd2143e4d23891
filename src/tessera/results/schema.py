"""The tables of a store, for SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Literal

# Header of an SQLite file: application id and schema version. Schema 2 added checksums, the writer of a run, and the
# index of cases.
APPLICATION_ID = int.from_bytes(b"Tess", "big")
STORE_SCHEMA_VERSION = 2

Dialect = Literal["sqlite", "postgresql"]

# `body` is the record as JSON without samples and environment; the columns before it repeat the searched fields. The
# blobs come last, so that SQLite reads them only if they are selected. Ids of runs and environments are never reused,
# so that a reader may cache them. `writer` is the process that is writing the run.
_RUNS_SQL = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL,
    suite TEXT NOT NULL,
    started TEXT NOT NULL,
    finished TEXT NOT NULL DEFAULT '',
    writer TEXT NOT NULL DEFAULT '',
    checksum INTEGER NOT NULL DEFAULT 0
) STRICT;
"""
_ENVIRONMENTS_SQL = """
CREATE TABLE environments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest TEXT NOT NULL UNIQUE,
    content TEXT NOT NULL
) STRICT;
"""
RECORDS_SQL = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    key TEXT NOT NULL,
    feature TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments (id),
    checksum BLOB NOT NULL,
    body TEXT NOT NULL,
    sample_values BLOB NOT NULL,
    sample_others BLOB NOT NULL,
    UNIQUE (run, key)
) STRICT;
"""
INDEXES_SQL = """
CREATE INDEX records_by_environment ON records (environment);
CREATE INDEX records_by_case ON records (feature, name);
"""
CREATE_TABLES_SQL = _RUNS_SQL + _ENVIRONMENTS_SQL + RECORDS_SQL + INDEXES_SQL
TABLE_NAMES = ("runs", "environments", "records")
NEW_COLUMNS = (("runs", "writer"), ("runs", "checksum"), ("records", "checksum"))  # not in schema 1
INDEX_NAMES = ("records_by_environment", "records_by_case")

# A long key does not fit into an index of PostgreSQL, so its hash is unique instead.
_POSTGRESQL_WORDS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER PRIMARY KEY": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    "BLOB": "BYTEA",
    ",\n    UNIQUE (run, key)\n) STRICT;": "\n);\nCREATE UNIQUE INDEX records_by_key ON records (run, md5(key));",
    " STRICT": "",
}


def list_statements(script: str, dialect: Dialect = "sqlite") -> list[str]:
    """Return the statements of a script in a dialect.

    >>> list_statements("CREATE TABLE a (b BLOB) STRICT;", "postgresql")
    ['CREATE TABLE a (b BYTEA)']
    """
    if dialect == "postgresql":
        for words, replacement in _POSTGRESQL_WORDS.items():
            script = script.replace(words, replacement)
    return [statement.strip() for statement in script.split(";") if statement.strip()]
