"""Faults: damaged and made-up inputs of every reader, killed writers, and large stores. Prints one line per part.

    python benchmarks/faults.py --only fuzz --count 20000     inputs per reader
    python benchmarks/faults.py --only kills --count 200      SIGKILLs of processes that write a store
    python benchmarks/faults.py --only scale --count 200000   records of a store, and the time of commands on it

An input counts as a failure if the command ends in a traceback or runs longer than ten seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tessera.cli.main import main as run_tessera  # noqa: E402
from tessera.errors import EXIT_USAGE  # noqa: E402
from tessera.measure.samples import Samples  # noqa: E402
from tessera.results.export import to_json_text  # noqa: E402
from tessera.results.metrics import Metric  # noqa: E402
from tessera.results.record import Case, Record  # noqa: E402
from tessera.results.store import Store  # noqa: E402

LIMIT_SECONDS = 10
OLD_STORE = ROOT / "tests" / "results" / "data" / "store-v1.sqlite"
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**62, 2**70, 1e308, "", "x", "\x1b[2J", "../../x", "/dev/zero", "a" * 5000, [], [[]], {},
    {"a": {}}, [1, "2"], {"$float": "nan"}, {"$object": 1}, "1e999", "nan", "{}", "0x10", "\u202e", "os:system",
)  # fmt: skip


class Overdue(Exception):
    """The time limit of one input."""


def _raise_overdue(number: int, frame: object) -> None:
    raise Overdue


def try_command(words: list[str]) -> str:
    """Run a command in this process; return an empty text, or the last line of the traceback."""
    signal.signal(signal.SIGALRM, _raise_overdue)
    signal.alarm(LIMIT_SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run_tessera(words)
    except Overdue:
        return f"longer than {LIMIT_SECONDS} s: {' '.join(words)[:200]}"
    except SystemExit as error:
        return "" if error.code in (0, EXIT_USAGE) else f"exit {error.code}"
    except BaseException:
        return traceback.format_exc().splitlines()[-1] + traceback.format_exc().splitlines()[-3]
    finally:
        signal.alarm(0)
    return ""


def list_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a plain value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in list_places(item, (*path, key)))]


def change_value(document: Any, rng: random.Random) -> Any:
    """Return a copy of a document with one to three values replaced or removed."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.randint(1, 3)):
        *path, last = rng.choice(list_places(document)[1:])
        inner = document
        try:
            for key in path:
                inner = inner[key]
            if rng.random() < 0.2:
                del inner[last]
            else:
                inner[last] = rng.choice(ODD_VALUES)
        except (KeyError, IndexError, TypeError):
            continue
    return document


def change_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return content with some bytes flipped, removed or repeated."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 4, 50))):
        place = rng.randrange(len(changed))
        choice = rng.random()
        if choice < 0.8:
            changed[place] ^= 1 << rng.randrange(8)
        elif choice < 0.9:
            del changed[place : place + rng.randrange(1, 50)]
        else:
            changed[place:place] = changed[place : place + rng.randrange(1, 50)]
    return bytes(changed)


def fuzz_exports(rng: random.Random) -> Callable[[], str]:
    exports = []
    with Store("old.sqlite", create=False) as store:
        for run in store.list_runs():
            exports.append(json.loads(to_json_text(run, store.read_records(run))))
    commands = (
        ["export", "--import", "bad.json", "--store", "import.sqlite", "--as", "bad"],
        ["compare", "ops-1", "bad.json", "--store", "old.sqlite"],
        ["report", "bad.json", "-o", "page.html"],
    )

    def attempt() -> str:
        document = change_value(rng.choice(exports), rng)
        text = json.dumps(document)
        Path("bad.json").write_bytes(change_bytes(text.encode(), rng) if rng.random() < 0.2 else text.encode())
        for name in ("import.sqlite", "import.sqlite-wal", "import.sqlite-shm"):
            Path(name).unlink(missing_ok=True)
        words = rng.choice(commands)
        if why := try_command(words):
            return why
        if words[0] == "export" and Path("import.sqlite").exists():
            for after in (["show", "latest"], ["report", "-o", "page.html"], ["repro", "*"], ["history", "*"]):
                if why := try_command([*after, "--store", "import.sqlite"]):
                    return why
        return ""

    return attempt


def fuzz_stores(rng: random.Random) -> Callable[[], str]:
    with Store("old.sqlite", create=False):
        pass
    with sqlite3.connect("old.sqlite") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    content = Path("old.sqlite").read_bytes()
    commands = (
        ["list", "runs"], ["show", "ops-1"], ["compare", "ops-1", "ops-2"], ["history", "add"], ["store", "check"],
        ["report", "ops-1", "conv", "-o", "page.html"], ["export", "latest", "-o", "out.json"], ["repro", "add"],
    )  # fmt: skip

    def attempt() -> str:
        for name in ("bad.sqlite-wal", "bad.sqlite-shm"):
            Path(name).unlink(missing_ok=True)
        Path("bad.sqlite").write_bytes(change_bytes(content, rng))
        return try_command([*rng.choice(commands), "--store", "bad.sqlite"])

    return attempt


def fuzz_suites(rng: random.Random) -> Callable[[], str]:
    texts = [path.read_text() for path in (ROOT / "src" / "tessera" / "suites" / "data").glob("*.toml")]
    blocks = [block for text in texts for block in text.split("[[cases]]")[1:]]

    def attempt() -> str:
        lines = ["[[cases]]", *rng.choice(blocks).strip().splitlines()]
        for _ in range(rng.randint(0, 3)):
            place = rng.randrange(1, len(lines))
            name = lines[place].partition("=")[0].strip() or "feature"
            value = json.dumps(rng.choice(ODD_VALUES)).replace("null", '"null"').replace("{}", "[]")
            lines[place] = f"{name} = {value}"
        Path("bad.toml").write_bytes(
            change_bytes("\n".join(lines).encode(), rng) if rng.random() < 0.3 else "\n".join(lines).encode()
        )
        return try_command(["suite", "bad.toml", "--dry-run"])

    return attempt


def fuzz_machines(rng: random.Random) -> Callable[[], str]:
    files = [path.read_bytes() for path in (ROOT / "src" / "tessera" / "machine" / "data").glob("*.toml")]

    def attempt() -> str:
        Path("machine.toml").write_bytes(change_bytes(rng.choice(files), rng))
        return try_command(["conv", "--machine", "machine.toml", "--list"])

    return attempt


def fuzz_words(rng: random.Random) -> Callable[[], str]:
    commands = [
        ["ops", "add", "--list"], ["halo", "exchange", "--list"], ["conv", "--list"], ["phases", "--list"],
        ["infer", "--list"], ["compare"], ["history", "add"], ["report", "-o", "page.html"],
        ["suite", "--dry-run", "quick"], ["repro", "add"], ["show"], ["list", "models"],
    ]  # fmt: skip
    options = [
        "--size", "--batch-size", "--image-size", "--kernel", "--num-spatial-parts", "--input", "--threshold",
        "--metric", "--launches", "--budget", "--store", "--sweep", "--machine", "--model", "--name", "--last", "--run",
    ]  # fmt: skip
    values = [
        "",
        "-1",
        "9" * 5000,
        "1e999",
        "nan",
        "x=1",
        "a,b;c",
        "(" * 3000,
        "2147483648x2147483648",
        "\udcff",
        "*[",
        "latest~99",
    ]

    def attempt() -> str:
        words = list(rng.choice(commands))
        for _ in range(rng.randint(1, 3)):
            words += [rng.choice(options), rng.choice(values)]
        return try_command(
            words if "--store" in words else [*words, *(["--store", "old.sqlite"] if rng.random() < 0.5 else [])]
        )

    return attempt


READERS: dict[str, Callable[[random.Random], Callable[[], str]]] = {
    "exports": fuzz_exports,
    "stores": fuzz_stores,
    "suites": fuzz_suites,
    "machines": fuzz_machines,
    "words": fuzz_words,
}


def run_fuzz(count: int, seed: int) -> dict[str, Counter[str]]:
    """Try `count` inputs of every reader in a new directory; return the failures of each."""
    failures: dict[str, Counter[str]] = {}
    for name, prepare in READERS.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path("old.sqlite").write_bytes(OLD_STORE.read_bytes())
            attempt = prepare(random.Random(f"{seed} {name}"))
            failures[name] = Counter(filter(None, (attempt() for _ in range(count))))
    return failures


def run_kills(count: int) -> None:
    """Run the test that kills writers, with `count` kills."""
    from tests.results.test_store_kill import check, kill_a_writer

    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path, finished = Path(folder) / "one.sqlite", {}
        for round_ in range(count):
            finished[round_] = kill_a_writer(path, round_, rng, at_start=False)
        check(path, finished)
        left = sorted(p.name for p in Path(folder).iterdir())
    print(f"kills: {count} SIGKILLs, {sum(map(len, finished.values())):,} reported records, none lost; files: {left}")


def run_scale(count: int) -> None:
    """Fill a store with records of 100 cases, and time commands on it in new processes."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        rng = random.Random(0)
        environment = {"fingerprint": "here", "cpu": "cpu"}
        with Store("large.sqlite") as store:
            for number in range(count // 100):
                run = store.start_run(f"run-{number}", suite="nightly")
                records = []
                for case in range(100):
                    values = tuple(rng.gauss(1e-3, 1e-5) for _ in range(20))
                    records.append(
                        Record(
                            case=Case(feature="ops", name=f"op{case}", params={"size": "small"}),
                            launches=(Samples(values=values),) * 3,
                            metrics={"time": Metric(values[0], "s", "lower")},
                            environment=environment,
                        )
                    )
                store.add_all(run, records)
                store.finish_run(run)
        size = Path("large.sqlite").stat().st_size / 2**20
        for words in (["history", "op7"], ["compare"], ["report", "latest~1", "latest", "-o", "p.html"], ["show"]):
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "tessera", *words, "--store", "large.sqlite"],
                capture_output=True,
                env=os.environ,
            )
            seconds = time.monotonic() - began
            print(
                f"scale: {count:,} records, {size:.0f} MiB: tessera {words[0]}: {seconds:.2f} s, exit {done.returncode}"
            )


def main() -> int:
    """Run the chosen parts; the exit code is 1 if an input failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("fuzz", "kills", "scale"), action="append")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    args = parser.parse_args()
    parts = args.only or ["fuzz", "kills", "scale"]
    failed = False
    if "fuzz" in parts:
        count = args.count or 2000
        for name, failures in run_fuzz(count, args.seed).items():
            failed |= bool(failures)
            print(f"fuzz: {name}: {count} inputs, {sum(failures.values())} failures (seed {args.seed})")
            for why, times in failures.most_common(20):
                print(f"  {times} x {why[:300]}")
    if "kills" in parts:
        run_kills(args.count or 200)
    if "scale" in parts:
        run_scale(args.count or 200_000)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
