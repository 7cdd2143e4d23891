"""A store in a PostgreSQL database, for the results of many machines; requires the extra `postgres`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tessera.errors import MissingExtra, TesseraError, get_first_line
from tessera.results.database import Row, StoreUnavailable
from tessera.results.schema import APPLICATION_ID, CREATE_TABLES_SQL, STORE_SCHEMA_VERSION, list_statements

if TYPE_CHECKING:
    import psycopg

URL_PATTERN = re.compile(r"postgres(?:ql)?://\S*?(?=['\"]?(?:\s|$))")  # without a quotation mark at the end
CONNECT_SECONDS = 5
RECONNECT_DELAYS = (0.1, 0.5, 2.0)  # seconds; a restart of the server takes about a second


def is_database_url(text: object) -> bool:
    """Return whether a text is the address of a PostgreSQL database instead of a path.

    >>> is_database_url("postgresql://host/results"), is_database_url("results.sqlite")
    (True, False)
    """
    return isinstance(text, str) and text.startswith(("postgresql://", "postgres://"))


def mask_secrets(text: str) -> str:
    """Remove passwords from all database addresses in a text.

    >>> mask_secrets("tessera ops --store postgresql://me:se@cret@host/db?password=x&sslmode=require")
    'tessera ops --store postgresql://me@host/db?sslmode=require'
    """
    return URL_PATTERN.sub(lambda match: _mask_url(match[0]), text)


def mask_address(word: str) -> str:
    """Remove the password from an address, or from a word of a command line such as `--store=ADDRESS`.

    >>> mask_address("--store=postgresql://me:it's a secret@host/db")
    '--store=postgresql://me@host/db'
    """
    start = URL_PATTERN.search(word)
    return word[: start.start()] + _mask_url(word[start.start() :]) if start else word


def _mask_url(url: str) -> str:
    """Remove the password and secret parameters; libpq accepts every character except `/` and `@` in a password."""
    scheme, _, rest = url.partition("://")
    server, slash, path = rest.partition("/")
    user, at, host = server.rpartition("@")
    port = server.partition(":")[2]
    if not at and port and not port[-1].isdigit() and "@" in path:  # a password with a slash, which is not valid
        return f"{scheme}://…"
    rest = user.partition(":")[0] + at + host + slash + path
    rest, _, query = rest.partition("?")
    kept = [part for part in query.split("&") if part and not _is_secret(part.partition("=")[0])]
    return f"{scheme}://{rest}" + ("?" + "&".join(kept) if kept else "")


def _is_secret(name: str) -> bool:
    return any(word in unquote(name).lower() for word in ("pass", "secret", "scram"))


class PostgresDatabase:
    """A store in a PostgreSQL database. A role without the right to insert opens it for reading."""

    serializes_writers = False

    def __init__(self, url: str, *, create: bool) -> None:
        self.label = mask_address(url)
        self._url = url
        self._db = self._connect()
        try:
            self._writer = self._describe_connection()
            self.schema_version = self._prepare(create=create)
            allowed = "SELECT has_table_privilege('records', 'INSERT') AND has_table_privilege('runs', 'INSERT')"
            self.read_only = not self.query(allowed)[0][0]
        except BaseException:
            self._db.close()
            raise

    def _connect(self) -> psycopg.Connection[Row]:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("psycopg", "postgres") from None
        try:
            return psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="tessera",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=30_000,
            )
        except psycopg.OperationalError as error:
            raise StoreUnavailable(
                f"the store {self.label} cannot be reached: {_describe_error(error)}",
                do="check that the server runs, the address and the role",
            ) from None
        except psycopg.Error as error:
            raise TesseraError(
                f"invalid address of a store: {_describe_error(error)}",
                got=self.label,
                allowed="postgresql://USER@HOST:PORT/DATABASE",
            ) from None

    def reconnect(self) -> None:
        """Open a new connection after the old one was lost; raise `StoreUnavailable` if the server does not answer."""
        self._db.close()
        for delay in (*RECONNECT_DELAYS, None):
            try:
                self._db = self._connect()
                break
            except StoreUnavailable:
                if delay is None:
                    raise
                time.sleep(delay)
        writer = self._describe_connection()
        with self.transaction():
            self.query("UPDATE runs SET writer = ? WHERE writer = ?", (writer, self._writer))
        self._writer = writer

    @property
    def in_transaction(self) -> bool:
        from psycopg.pq import TransactionStatus

        return self._db.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        sql = sql.replace("ON CONFLICT (run, key)", "ON CONFLICT (run, md5(key))").replace("?", "%s")
        with self._explain_errors():
            cursor = self._db.execute(sql, tuple(parameters) or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._explain_errors():
            self._db.execute("BEGIN")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                import psycopg

                with suppress(psycopg.Error):  # the server rolls back by itself if the connection is lost
                    self._db.execute("ROLLBACK")
                raise

    def lock_runs(self) -> None:
        """Wait until no other process starts or resumes a run; the lock ends with the transaction."""
        self.query("SELECT pg_advisory_xact_lock(?)", (APPLICATION_ID,))

    def describe_writer(self) -> str:
        """Return a text that identifies this connection on the server."""
        return self._writer

    def _describe_connection(self) -> str:
        rows = self.query("SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        return f"connection|{self._db.info.backend_pid}|{rows[0][0] if rows else ''}"

    def is_writing(self, writer: str) -> bool:
        """Return whether another connection that wrote a run is still open."""
        kind, _, rest = writer.partition("|")
        number, _, started = rest.partition("|")
        if kind != "connection" or not number.isdecimal() or len(number) > 9 or writer == self.describe_writer():
            return False
        rows = self.query("SELECT backend_start::text FROM pg_stat_activity WHERE pid = ?", (int(number),))
        return bool(rows) and rows[0][0] in (None, started)

    def check(self) -> Iterator[str]:
        for table, number in self.query(
            "SELECT 'runs', count(*) FROM records r LEFT JOIN runs u ON u.id = r.run WHERE u.id IS NULL UNION ALL"
            " SELECT 'environments', count(*) FROM records r LEFT JOIN environments e ON e.id = r.environment"
            " WHERE e.id IS NULL"
        ):
            if number:
                yield f"{number} records refer to missing rows of {table}"

    def vacuum(self) -> None:
        with self.transaction():
            self.query("LOCK TABLE records IN EXCLUSIVE MODE")
            self.query("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM records)")
        self.query("VACUUM runs, environments, records")

    def close(self) -> None:
        self._db.close()

    def _prepare(self, *, create: bool) -> int:
        with self.transaction():
            self.lock_runs()
            exists = self.query("SELECT to_regclass('tessera_store') IS NOT NULL")[0][0]
            if not exists and create:
                self.query("CREATE TABLE tessera_store (version BIGINT NOT NULL)")
                for statement in list_statements(CREATE_TABLES_SQL, "postgresql"):
                    self.query(statement)
                self.query("INSERT INTO tessera_store (version) VALUES (?)", (STORE_SCHEMA_VERSION,))
            elif not exists:
                raise TesseraError(
                    "the database has no store", got=self.label, do="run a suite with this --store, which creates it"
                )
            version = int(self.query("SELECT version FROM tessera_store")[0][0])
        if version != STORE_SCHEMA_VERSION:  # schema 1 was never in PostgreSQL
            raise TesseraError(
                f"the store {self.label} has another schema",
                got=version,
                allowed=str(STORE_SCHEMA_VERSION),
                do="upgrade tessera",
            )
        return version

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Convert errors of PostgreSQL to a `TesseraError` in one line; a lost connection is `StoreUnavailable`."""
        import psycopg

        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            raise TesseraError(
                f"the role may not do this in the store {self.label}: {_describe_error(error)}",
                do="use a role that may write, see docs/team-store.md",
            ) from None
        except psycopg.errors.ForeignKeyViolation:
            raise TesseraError(
                f"the store {self.label} cannot be used: a run is missing", do="another process deleted the run"
            ) from None
        except psycopg.Error as error:
            lost = self._db.broken or self._db.closed or isinstance(error, psycopg.errors.AdminShutdown)
            kind = StoreUnavailable if lost else TesseraError
            raise kind(f"the store {self.label} cannot be used: {_describe_error(error)}") from None


def _describe_error(error: Exception) -> str:
    return mask_secrets(get_first_line(error))
