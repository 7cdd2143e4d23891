"""The store: every run and its records in one SQLite file, safe against a kill at any moment.

Only the parent process writes. Each record is one transaction in write-ahead mode, synced before `add`
returns: what was added is there after a kill or a power cut, and a half-written record never is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Self

from tessera.errors import TesseraError, did_you_mean
from tessera.results import strict_json
from tessera.results.observation import Observation
from tessera.results.reading import Reading
from tessera.results.record import Case, Metric, Record, Status
from tessera.results.rows import storable, to_observation, to_record, to_row
from tessera.results.run import Run, check_name, dated_name, steps_back
from tessera.results.schema import explained, open_database


def default_store_path() -> Path:
    """The file of `TESSERA_STORE`, or `.tessera/results.sqlite` in the current directory."""
    return Path(os.environ.get("TESSERA_STORE") or Path(".tessera") / "results.sqlite")


class Store:
    """Runs and their records in one file; use it as a context manager.

    With `create=False` a file that does not exist is an error instead of a new store.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = Path(path) if path is not None else default_store_path()
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
        """All changes within take effect together or not at all; one inside another is part of it."""
        if self._db.in_transaction:
            yield
            return
        with explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._db.execute("ROLLBACK")
                raise

    def start_run(
        self,
        name: str | None = None,
        *,
        command: str = "",
        suite: str = "",
        resume: bool = False,
        started: str = "",
    ) -> Run:
        """Begin a run, or go on with an unfinished one.

        Without a name, a new run is named for the day, and `resume` takes the newest unfinished run of the
        suite. `started` is now, unless the run comes from elsewhere.
        """
        if resume:
            return self._resumable(name, suite)
        if name is not None:
            check_name(name)
        now = _now()
        with self.transaction():
            taken = {run.name: run for run in self.runs()}
            if name in taken:
                going_on = not taken[name].finished
                raise TesseraError(
                    f"there is already {'an unfinished' if going_on else 'a finished'} run of this name",
                    got=name,
                    do="give another name" + (", or go on with it with --resume" if going_on else ""),
                )
            name = name or dated_name(now.partition("T")[0], taken)
            self._db.execute(
                "INSERT INTO runs (name, command, suite, started) VALUES (?, ?, ?, ?)",
                (name, storable(command), storable(suite), started or now),
            )
            return self.run(name)

    def _resumable(self, name: str | None, suite: str) -> Run:
        if name is None:
            unfinished = [run for run in self.runs() if not run.finished and run.suite == suite]
            if not unfinished:
                what = f"no unfinished run of {suite} to resume" if suite else "no unfinished run to resume"
                raise TesseraError(what, do="start one without --resume")
            return unfinished[-1]
        run = self.run(name)
        if run.finished:
            raise TesseraError("this run is finished", got=run.name, do="start another without --resume")
        return run

    def finish_run(self, run: Run, *, finished: str = "") -> Run:
        """Mark a run as complete, now or at the time given."""
        with self.transaction():
            self._db.execute("UPDATE runs SET finished = ? WHERE id = ?", (finished or _now(), run.id))
        return self.run(run.name)

    def runs(self) -> tuple[Run, ...]:
        """All runs, the oldest first."""
        with explained(self.path):
            columns = ("id", "name", "command", "suite", "started", "finished")
            found = self._db.execute(f"SELECT {', '.join(columns)} FROM runs ORDER BY id").fetchall()
        return tuple(Run(**dict(zip(columns, row, strict=True))) for row in found)

    def run(self, name: str) -> Run:
        """The run of this name; `latest` is the newest, `latest~1` the one before it."""
        runs = self.runs()
        back = steps_back(name)
        if back is not None and back < len(runs):
            return runs[-1 - back]
        for run in runs:
            if run.name == name:
                return run
        newest = [run.name for run in reversed(runs)]
        instead = f"the newest are {', '.join(newest[:3])}" if newest else "it has no runs yet"
        raise TesseraError(f"no such run in {self.path}", got=name, do=did_you_mean(name, newest, instead))

    def delete_run(self, run: Run) -> None:
        """Remove a run, its records, and the environments that no other record has."""
        with self.transaction():
            self._db.execute("DELETE FROM records WHERE run = ?", (run.id,))
            self._db.execute("DELETE FROM runs WHERE id = ?", (run.id,))
            self._db.execute("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM records)")

    def add(self, run: Run, record: Record) -> None:
        """Store one record for good; it replaces an earlier record of the same case in the same run."""
        row = to_row(record)
        with self.transaction():
            environment = self._environment_id(row.environment)
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
        """Store many records at once: all of them or none."""
        with self.transaction():
            for record in records:
                self.add(run, record)

    def records(self, run: Run, feature: str | None = None, name_glob: str | None = None) -> Iterator[Record]:
        """The records of a run in the order in which their cases were first added."""
        columns = "body, environment, sample_values, sample_others"
        for body, environment, values, others in self._rows(columns, run, feature, name_glob):
            yield to_record(body, self._environment(environment), values, others)

    def observations(self, run: Run, feature: str | None = None, name_glob: str | None = None) -> Iterator[Observation]:
        """The same records as `compare` sees them, read much faster."""
        for body, environment, values in self._rows("body, environment, sample_values", run, feature, name_glob):
            yield to_observation(body, self._environment(environment), values)

    def finished_keys(self, run: Run) -> dict[str, Status]:
        """The cases that a resumed run skips, by key: measured or refused. All others are tried again."""
        query = "SELECT key, status FROM records WHERE run = ? AND status IN ('ok', 'refused') ORDER BY id"
        with explained(self.path):
            return dict(self._db.execute(query, (run.id,)))

    def counts(self, run: Run) -> dict[Status, int]:
        """How many records of a run have each status that occurs."""
        query = "SELECT status, count(*) FROM records WHERE run = ? GROUP BY status ORDER BY status"
        with explained(self.path):
            return dict(self._db.execute(query, (run.id,)))

    def cases(self) -> list[tuple[str, str]]:
        """The feature and the name of every case that any run holds."""
        with explained(self.path):
            return self._db.execute("SELECT DISTINCT feature, name FROM records ORDER BY feature, name").fetchall()

    def readings(self, metric: str, cases: Collection[tuple[str, str]]) -> Iterator[Reading]:
        """One metric of all records of some cases, run after run: nothing else is read, so a long history is quick."""
        if '"' in metric:
            raise TesseraError("not a name of a metric", got=metric)
        with explained(self.path):
            rows = self._db.execute(
                "SELECT id, run, key, status, environment, json_extract(body, '$.version'), json_extract(body, ?1)"
                " FROM records WHERE (feature, name) IN"
                " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2))"
                " ORDER BY run, id",
                (f'$.metrics."{metric}"', strict_json.dumps(list(cases))),
            ).fetchall()
        runs = {run.id: run for run in self.runs()}
        known: dict[str, Case] = {}
        for number, run, key, status, environment, version, found in rows:
            if key not in known:
                (case,) = self._row("json_extract(body, '$.case')", number)
                known[key] = Case(**strict_json.loads(case))
            yield Reading(
                case=known[key],
                run=runs[run].name,
                started=runs[run].started,
                suite=runs[run].suite,
                status=status,
                version=version,
                fingerprint=str(self._environment(environment).get("fingerprint", "")),
                metric=None if found is None else Metric(**strict_json.loads(found)),
                launches=partial(self._figures, number),
            )

    def _figures(self, number: int) -> tuple[float, ...]:
        body, environment, values = self._row("body, environment, sample_values", number)
        return to_observation(body, self._environment(environment), values).figures

    def _row(self, columns: str, number: int) -> tuple[Any, ...]:
        with explained(self.path):
            row: tuple[Any, ...] = self._db.execute(f"SELECT {columns} FROM records WHERE id = ?", (number,)).fetchone()
        return row

    def _rows(self, columns: str, run: Run, feature: str | None, name_glob: str | None) -> Iterator[tuple[Any, ...]]:
        # One query per record: no cursor stays open while the caller works, and a run need not fit in memory.
        with explained(self.path):
            found = self._db.execute(
                "SELECT id, name FROM records WHERE run = ?1 AND (?2 IS NULL OR feature = ?2) ORDER BY id",
                (run.id, feature),
            ).fetchall()
        for number, name in found:
            if name_glob is not None and not fnmatchcase(name, name_glob):
                continue
            with explained(self.path):
                row = self._db.execute(f"SELECT {columns} FROM records WHERE id = ?", (number,)).fetchone()
            if row is not None:
                yield row

    def _environment_id(self, content: str) -> int:
        digest = hashlib.sha256(content.encode()).hexdigest()
        self._db.execute(
            "INSERT INTO environments (digest, content) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (digest, content),
        )
        found = self._db.execute("SELECT id FROM environments WHERE digest = ?", (digest,)).fetchone()
        return int(found[0])

    def _environment(self, number: int) -> Mapping[str, Any]:
        if number not in self._environments:
            with explained(self.path):
                (content,) = self._db.execute("SELECT content FROM environments WHERE id = ?", (number,)).fetchone()
            self._environments[number] = strict_json.loads(content)
        return self._environments[number]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
