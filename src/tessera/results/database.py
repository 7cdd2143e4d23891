"""The database behind a store: the interface that SQLite and PostgreSQL implement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tessera.errors import TesseraError

Row = tuple[Any, ...]


class DamagedStore(TesseraError):
    """The error for a part of a store that cannot be read."""


class StoreUnavailable(TesseraError):
    """The error for a database server that does not answer."""


class Database(Protocol):
    """An open database. SQL statements use `?` for parameters, and only what both dialects share.

    `label` names the database in messages, without secrets. `schema_version` is below the current version only for a
    read-only store of an older release. `serializes_writers` is true if one transaction excludes all others.
    """

    serializes_writers: bool
    label: str
    read_only: bool
    schema_version: int

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement and return its rows."""

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all changes are applied atomically, and durably when it ends."""

    def lock_runs(self) -> None:
        """Wait, inside a transaction, until no other process starts or resumes a run."""

    def describe_writer(self) -> str:
        """Return a text that identifies this process as the writer of a run."""

    def is_writing(self, writer: str) -> bool:
        """Return whether another process that is identified by this text may still write."""

    def reconnect(self) -> None:
        """Connect again after `StoreUnavailable`."""

    def check(self) -> Iterator[str]:
        """Yield a line for every structural fault of the database."""

    def vacuum(self) -> None:
        """Return unused space to the file system."""

    def close(self) -> None:
        """Close the database."""
