"""Tests of the spool: no record is lost if the server goes away, refuses a record, or several stores share a spool."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.results import postgres_database
from tessera.results.database import StoreUnavailable
from tessera.results.record import Record
from tessera.results.store import DamagedRecordsWarning, SpoolWarning, Store, get_spool_path
from tests.results.postgres_server import PostgresServer
from tests.results.synthetic import make_measured_record

pytestmark = pytest.mark.timeout(120)
END_CONNECTIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tessera'"


@pytest.fixture
def url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(postgres_database, "RECONNECT_DELAYS", (0.1,))
    return postgres.create_database()


@contextmanager
def stop_server(postgres: PostgresServer) -> Iterator[None]:
    postgres.stop()
    try:
        yield
    finally:
        postgres.start()


def make_records(count: int) -> list[Record]:
    rng = np.random.default_rng(count)
    return [make_measured_record(f"op{number}", 1.0, rng) for number in range(count)]


def read_run(url: str, name: str) -> list[Record]:
    """Open the store for writing, which sends the spool, and return the records of a run."""
    with Store(url) as store:
        return list(store.read_records(store.get_run(name)))


def list_spooled_runs(url: str) -> list[str]:
    with Store(get_spool_path(url), create=False) as spool:
        return [run.name for run in spool.list_runs()]


def test_a_store_that_closes_keeps_the_spool_of_another_process(postgres: PostgresServer, url: str) -> None:
    (record,) = make_records(1)
    store = Store(url)
    run = store.start_run("one")
    Store(url).close()
    with stop_server(postgres):
        store.add(run, record)
        with pytest.warns(SpoolWarning):
            store.close()
    assert read_run(url, "one") == [record]
    assert list_spooled_runs(url) == []


def test_several_records_are_spooled_if_the_server_is_away(postgres: PostgresServer, url: str) -> None:
    records = make_records(3)
    store = Store(url)
    run = store.start_run("one")
    with stop_server(postgres):
        store.add_all(run, records)
        store.finish_run(run)
        with pytest.warns(SpoolWarning):
            store.close()
    assert read_run(url, "one") == records
    assert list_spooled_runs(url) == []


def test_a_record_that_the_server_refuses_stays_in_the_spool(postgres: PostgresServer, url: str) -> None:
    (record,) = make_records(1)
    database = url.partition("@/")[2].partition("?")[0]
    store = Store(url)
    run = store.start_run("one")
    postgres.execute(
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE 'no space left'; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER refuse BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION refuse()",
        database=database,
    )
    with pytest.raises(TesseraError, match="no space left"):
        store.add(run, record)
    with pytest.warns(SpoolWarning, match="they are kept in"):
        store.close()
    with pytest.warns(SpoolWarning, match="no space left"):
        Store(url).close()
    postgres.execute("DROP TRIGGER refuse ON records", database=database)
    assert read_run(url, "one") == [record]


def test_a_run_is_not_finished_without_the_records_of_a_lost_transaction(postgres: PostgresServer, url: str) -> None:
    with Store(url) as store:
        run = store.start_run("one")
        with pytest.raises(StoreUnavailable), store.transaction():  # noqa: PT012
            store.add_all(run, make_records(2))
            postgres.execute(END_CONNECTIONS)
            store.finish_run(run)
    with Store(url, create=False) as store:
        assert not store.get_run("one").finished


def test_a_run_with_a_damaged_record_stays_in_the_spool(postgres: PostgresServer, url: str) -> None:
    records = make_records(2)
    store = Store(url)
    run = store.start_run("one")
    with stop_server(postgres):
        store.add_all(run, records)
        with pytest.warns(SpoolWarning):
            store.close()
    with sqlite3.connect(get_spool_path(url)) as db:
        db.execute("UPDATE records SET body = body || ' ' WHERE name = 'op1'")
    db.close()
    with pytest.warns(DamagedRecordsWarning):
        assert read_run(url, "one") == records[:1]
    assert list_spooled_runs(url) == ["one"]


def test_two_stores_of_one_process_share_the_spool(url: str) -> None:
    records = make_records(2)
    with Store(url) as first:
        run = first.start_run("one")
        first.add(run, records[0])
        Store(url).close()
        first.add(run, records[1])
        assert list_spooled_runs(url) == ["one"]
    assert read_run(url, "one") == records
    assert list_spooled_runs(url) == []


def test_a_store_that_reconnects_is_still_the_writer(postgres: PostgresServer, url: str) -> None:
    (record,) = make_records(1)
    with Store(url) as first:
        run = first.start_run("one")
        postgres.execute(END_CONNECTIONS)
        first.add(run, record)
        with Store(url) as second, pytest.raises(TesseraError, match=r"connection .* is writing the run"):
            second.start_run("one", resume=True)
    assert read_run(url, "one") == [record]


def test_a_run_of_the_name_of_a_run_in_the_spool(url: str) -> None:
    records = make_records(2)
    with Store(get_spool_path(url)) as spool:
        spool.add(spool.start_run("one", command="earlier", started="2026-01-01"), records[0])
    with sqlite3.connect(get_spool_path(url)) as db:
        db.execute("UPDATE records SET body = body || ' '")
    db.close()
    store = Store(url)
    store.delete_run(store.get_run("one"))
    run = store.start_run("one", command="later")
    store.add(run, records[1])
    assert list(store.read_records(run)) == records[1:]
    with pytest.warns(DamagedRecordsWarning):
        store.close()
