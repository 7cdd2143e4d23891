"""A PostgreSQL server for tests: started with initdb and pg_ctl in a temporary directory, reached by a socket."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

SERVER_USERS = ("postgres", "nobody")


class PostgresServer:
    """A running server; `create_database` returns the address of a new database."""

    def __init__(self, folder: Path, user: str) -> None:
        self.folder, self._user = folder, user
        self._numbers = itertools.count()
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "owner", "--no-sync", "-E", "UTF8")
        self.start()

    def _run(self, program: str, *words: str) -> None:
        prefix = ["runuser", "-u", self._user, "--"] if os.getuid() == 0 else []
        path = shutil.which(program) or program
        done = subprocess.run(
            [*prefix, path, *words], capture_output=True, text=True, timeout=60, cwd=self.folder, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c max_connections=60"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(log), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def make_url(self, database: str, user: str = "owner") -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}"

    def execute(self, *statements: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.make_url(database), autocommit=True) as db:
            for statement in statements:
                db.execute(statement)

    def create_database(self) -> str:
        name = f"results{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.make_url(name)


@contextmanager
def start_server() -> Iterator[PostgresServer]:
    """Start a server, or skip the test with the reason if PostgreSQL is not installed."""
    pytest.importorskip("psycopg")
    if not shutil.which("initdb") or not shutil.which("pg_ctl"):
        pytest.skip("initdb and pg_ctl are not in PATH; on Debian: apt install postgresql")
    users = [name for name in SERVER_USERS if any(entry.pw_name == name for entry in pwd.getpwall())]
    if os.getuid() == 0 and not users:
        pytest.skip("the server cannot run as root, and there is no other user")
    folder = Path(tempfile.mkdtemp(prefix="tessera-pg-", dir="/tmp"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, users[0])
        server = PostgresServer(folder, users[0] if users else "")
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
