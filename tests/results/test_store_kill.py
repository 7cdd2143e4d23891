"""Test of killing a writer a hundred times while it writes: no finished record may be lost."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tessera.results.store import Store

# Numbers are printed only after add() has returned. Records of different sizes fill one page or many.
WRITER = """
import sys
from tessera.measure.samples import Samples
from tessera.results.record import Case, Record
from tessera.results.store import Store

assert "numpy" not in sys.modules and "torch" not in sys.modules  # a writer is light
path, seed = sys.argv[1], int(sys.argv[2])
with Store(path) as store:
    run = store.start_run(f"run-{seed}")
    for number in range(10_000):
        values = tuple(seed + number / 8 for _ in range(number * 37 % 2000))
        record = Record(case=Case(feature="kill", name=str(number)), launches=(Samples(values=values),))
        store.add(run, record)
        print(number, flush=True)
"""


def kill_a_writer(path: Path, seed: int, rng: random.Random, *, at_start: bool) -> set[int]:
    """Start a writer, kill it at a random moment, and return the records that it reported as finished."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(seed)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        reported = []
        if not at_start:
            for _ in range(rng.randint(1, 12)):
                reported.append(writer.stdout.readline())
        time.sleep(rng.uniform(0, 0.2 if at_start else 0.004))
        os.kill(writer.pid, signal.SIGKILL)
        reported += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return {int(line) for line in reported if line.endswith("\n")}


def check(path: Path, finished: dict[int, set[int]]) -> None:
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    with Store(path) as store:
        for seed, numbers in finished.items():
            if not numbers:
                continue
            stored = {int(record.case.name): record for record in store.read_records(store.get_run(f"run-{seed}"))}
            assert numbers <= stored.keys()
            for number, record in stored.items():
                assert record.values == (seed + number / 8,) * (number * 37 % 2000)


@pytest.mark.timeout(90)
def test_no_finished_record_is_lost(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    print(f"seed {seed}")
    finished: dict[int, set[int]] = {}
    for round_ in range(75):  # one store: every round opens the file left by the previously killed writer
        finished[round_] = kill_a_writer(tmp_path / "one.sqlite", round_, rng, at_start=False)
        assert finished[round_]
    check(tmp_path / "one.sqlite", finished)
    for round_ in range(25):  # new stores: the writer is killed while it creates the file
        path = tmp_path / f"new-{round_}.sqlite"
        check(path, {round_: kill_a_writer(path, round_, rng, at_start=True)})
