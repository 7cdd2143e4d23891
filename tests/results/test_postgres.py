"""Tests of a store in PostgreSQL: many writers, kills, a server that goes away, roles, secrets, and copies."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.cli.main import main
from tessera.cli.options import format_command_line
from tessera.errors import TesseraError
from tessera.results.maintenance import check_store
from tessera.results.postgres_database import mask_address, mask_secrets
from tessera.results.record import Case, Record
from tessera.results.store import SpoolWarning, Store, get_spool_path
from tests.results.postgres_server import PostgresServer
from tests.results.synthetic import make_measured_record, records, to_exact_form

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.create_database()


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(several=st.lists(records(), max_size=3))
def test_records_come_back_exactly(url: str, several: list[Record]) -> None:
    with Store(url) as store:
        run = store.start_run()
        store.add_all(run, several)
        expected = {record.case.key: record for record in several}
        assert to_exact_form(list(store.read_records(run))) == to_exact_form(list(expected.values()))
        store.delete_run(run)


WRITER = """
import sys
from tessera.measure.samples import Samples
from tessera.results.record import Case, Record
from tessera.results.store import Store

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(url) as store:
    run = store.start_run(name)
    for number in range(count):
        values = tuple(number / 8 for _ in range(number * 37 % 2000))
        record = Record(case=Case(feature="kill", name=str(number)), launches=(Samples(values=values),))
        store.add(run, record)
        print(number, flush=True)
    store.finish_run(run)
"""


def start_writer(url: str, name: str, count: int, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WRITER, url, name, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TESSERA_HOME": str(home)},
    )


def read_names(store: Store, run: str) -> set[int]:
    return {int(record.case.name) for record in store.read_records(store.get_run(run))}


def test_many_writers_create_and_fill_one_store(url: str, tmp_path: Path) -> None:
    writers = [start_writer(url, f"w{number}", 40, tmp_path / f"home{number}") for number in range(5)]
    errors = [writer.communicate(timeout=100)[1] for writer in writers]
    assert errors == [""] * 5
    with Store(url) as store:
        assert [len(read_names(store, f"w{number}")) for number in range(5)] == [40] * 5
        assert all(run.finished for run in store.list_runs())
        assert check_store(store).is_sound
    for path in tmp_path.rglob("spool/*.sqlite"):
        with Store(path, create=False) as spool:
            assert not spool.list_runs(), "everything was sent, so the spool is empty"


def kill_writers(url: str, home: Path, rounds: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    reported: dict[str, set[int]] = {}
    for round_ in range(rounds):
        with start_writer(url, f"r{round_}", 10_000, home) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(rng.randint(1, 5))]
            time.sleep(rng.uniform(0, 0.01))
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
        reported[f"r{round_}"] = {int(line) for line in lines if line.endswith("\n")}
    with Store(url) as store:
        for name, numbers in reported.items():
            assert numbers
            assert numbers <= read_names(store, name)
        assert check_store(store).is_sound
        assert store.start_run("r0", resume=True).name == "r0", "a killed writer does not lock its run"


def test_no_record_is_lost_if_writers_are_killed(url: str, tmp_path: Path) -> None:
    kill_writers(url, tmp_path / "home", 8)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_record_is_lost_in_200_kills(url: str, tmp_path: Path) -> None:
    kill_writers(url, tmp_path / "home", 200)


def test_no_record_is_lost_if_the_server_is_killed(postgres: PostgresServer, url: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for round_ in range(3):
        with start_writer(url, f"s{round_}", 150, home) as writer:
            assert writer.stdout is not None
            for _ in range(20):
                writer.stdout.readline()
            postgres.stop()  # without a checkpoint, as after a power cut
            if round_ != 1:  # the writer reconnects; in the second round it goes on with the spool alone
                postgres.start()
            rest = writer.stdout.readlines()
            assert len(rest) == 130
        if round_ == 1:
            postgres.start()
    with Store(url) as store:  # sends the spool
        assert [read_names(store, f"s{round_}") for round_ in range(3)] == [set(range(150))] * 3
        assert all(run.finished for run in store.list_runs())
    with Store(get_spool_path(url), create=False) as spool:
        assert not spool.list_runs()


def test_a_server_that_is_away_at_the_start(postgres: PostgresServer, url: str) -> None:
    Store(url).close()
    postgres.stop("fast")
    try:
        with pytest.warns(SpoolWarning, match=r"cannot be reached.*records are kept in .*sent when"):
            store = Store(url)
        run = store.start_run("away")
        store.add(run, make_measured_record("add", 1.0, np.random.default_rng()))
        store.finish_run(run)
        store.close()
        with pytest.raises(TesseraError, match="cannot be reached"):
            Store(url, create=False)
    finally:
        postgres.start()
    with Store(url) as store:
        assert [run.name for run in store.list_runs()] == ["away"]
        assert len(list(store.read_records(store.get_run("away")))) == 1


def test_a_run_that_another_connection_writes_cannot_be_resumed(url: str) -> None:
    with Store(url) as first:
        first.start_run("one", suite="s")
        with Store(url) as second, pytest.raises(TesseraError, match=r"connection .* is writing the run"):
            second.start_run("one", resume=True)
    with Store(url) as second:
        assert second.start_run("one", resume=True).name == "one"


def test_a_reader_reads_and_may_not_write(postgres: PostgresServer, url: str) -> None:
    with Store(url) as store:
        store.add(store.start_run("one"), make_measured_record("add", 1.0, np.random.default_rng()))
    database = url.partition("@/")[2].partition("?")[0]
    postgres.execute(
        f"CREATE ROLE reader_{database} LOGIN",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_{database}",
        database=database,
    )
    reader = postgres.make_url(database, f"reader_{database}")
    with Store(reader, create=False) as store:
        run = store.get_run("one")
        assert len(list(store.read_records(run))) == 1
        with pytest.raises(TesseraError, match="the role may not do this"):
            store.delete_run(run)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:Tr0ub4dor@host/db",
        "postgres://me:a%40Tr0ub4dor@host:5432/db?sslmode=require",
        "postgresql://host/db?user=me&password=Tr0ub4dor",
        "postgresql://me:x@Tr0ub4dor@host/db",
        "postgresql://me:pa#Tr0ub4dor@host",
        "postgresql://me:it's\"Tr0ub4dor@host/db",
        "postgresql://me:pa?Tr0ub4dor@host/db?sslmode=require",
        "postgresql://host/db?oauth_client_secret=Tr0ub4dor",
        "postgresql://host/db?ssl%70assword=Tr0ub4dor",
    ],
)
def test_passwords_are_masked(address: str) -> None:
    assert "Tr0ub4dor" not in format_command_line(["tessera", "ops", f"--store={address}", address])
    assert "Tr0ub4dor" not in mask_secrets(f"tessera ops add --store {address} --quick")
    assert "host" in mask_secrets(address)
    assert mask_secrets(f"--store '{address}' --quick").endswith("' --quick")


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://me:a#b@h", "postgresql://me@h"),
        ("postgresql://me:a?b@h:5432,i/db", "postgresql://me@h:5432,i/db"),
        ("postgresql://me:a b@h/db", "postgresql://me@h/db"),
        ("postgresql://me:a/b@h/db", "postgresql://…"),
        ("postgresql://me@/db?host=%2Ftmp%2Fx&passfile=y", "postgresql://me@/db?host=%2Ftmp%2Fx"),
    ],
)
def test_the_rest_of_an_address_is_kept(address: str, masked: str) -> None:
    assert mask_address(address) == masked
    assert format_command_line(["tessera", f"--store={address}"]) == shlex.join(["tessera", f"--store={masked}"])


def test_no_password_is_stored_or_printed(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    secret = url.replace("owner@", "owner:Tr0ub4dor@")
    monkeypatch.chdir(tmp_path)
    words = ["ops", "add", "--backend", "numpy", "--size", "small", "--pass", "forward", "--quick", "--store", secret]
    monkeypatch.setattr(sys, "argv", ["tessera", *words])
    monkeypatch.setenv("TESSERA_STORE", secret)
    assert main(words) == 0
    for command in (
        ["list", "runs"],
        ["report", "-o", "page.html"],
        ["export", "latest", "-o", "run.json"],
        ["show", "x"],
    ):
        assert main(command) in (0, 2)
    assert "Tr0ub4dor" not in "".join(capsys.readouterr())
    with Store(secret) as store:
        assert "Tr0ub4dor" not in repr(store.list_runs()) + repr(list(store.read_records(store.get_run("latest"))))
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"Tr0ub4dor" not in path.read_bytes()


def test_sync_copies_both_ways_and_only_once(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local, rng = tmp_path / "local.sqlite", np.random.default_rng(3)
    for location, name in ((local, "here"), (url, "there")):
        with Store(location) as store:
            run = store.start_run(name, command=name)
            store.add_all(run, [make_measured_record(f"op{n}", 1.0, rng) for n in range(5)])
            store.finish_run(run)
    assert main(["sync", str(local), url]) == 0
    assert "5 records of 1 runs copied" in capsys.readouterr().err
    contents = []
    for location in (local, url):
        with Store(location, create=False) as store:
            contents.append({run.name: list(store.read_records(run)) for run in store.list_runs()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == {"here", "there"}
    assert main(["sync", str(local), url]) == 0
    assert "0 records of 0 runs copied, 10 present" in capsys.readouterr().err
    for wrong in (
        [str(local)],
        [str(local), str(local)],
        [str(tmp_path / "absent"), url],
        [str(local), "postgresql://["],
    ):
        assert main(["sync", *wrong]) == 2


def test_commands_work_on_a_database(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    with Store(url) as store:
        for name in ("a", "b"):
            run = store.start_run(name)
            store.add_all(run, [make_measured_record(f"op{n}", 1.0, rng) for n in range(5)])
            store.finish_run(run)
    for words in (
        ["list", "runs"],
        ["show", "a"],
        ["compare", "a", "b"],
        ["report", "a", "b", "-o", "page.html"],
        ["export", "a", "-o", "a.json"],
        ["export", "--import", "a.json", "--as", "c"],
        ["store", "check"],
        ["store", "delete", "c"],
        ["store", "vacuum"],
    ):
        assert main([*words, "--store", url]) in (0, 3), words


def test_a_database_that_holds_no_store_is_an_error(url: str) -> None:
    with pytest.raises(TesseraError, match="the database has no store"):
        Store(url, create=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpoolWarning)
        with pytest.raises(TesseraError, match="cannot be reached"):
            Store("postgresql://nobody@127.0.0.1:1/none", create=False)


def test_case_names_with_odd_characters_are_stored(url: str) -> None:
    record = Record(case=Case(feature="a\0b", name="%s ? %(x)s \ud800" + "n" * 5000, params={"k": "v" * 9000}))
    with Store(url) as store:
        run = store.start_run("r", command="a\0b \udcff ?", suite="%s")
        store.add(run, record)
        store.add(run, record)
        assert list(store.read_records(run)) == [record]
