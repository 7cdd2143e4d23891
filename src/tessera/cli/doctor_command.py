"""This machine: what it is, how noisy it is, how fast it is, and what to do about it.

Without options: the environment as records keep it, the noise of a fixed piece of work over some seconds, and advice.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.cli.options import add_output, checked
from tessera.cli.progress import StatusLine
from tessera.errors import OK, MissingExtra, TesseraError
from tessera.report.destination import destination
from tessera.report.figures import format_bytes, format_percent, format_rate, format_seconds
from tessera.report.tables import Column, render
from tessera.suites.suite import parse_duration

if TYPE_CHECKING:
    from tessera.launch.config import Spawn
    from tessera.machine import Machine
    from tessera.measure.noise import Noise

EPILOG = """\
examples:
  tessera doctor                   is this machine fit for measuring?
  tessera doctor --self-test       identical work against itself: false alarms, and the smallest change to be seen
  tessera doctor --calibrate       measure this host's rates (about a minute); predictions then stand beside times
"""

TRIALS = 25
LINK_SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)
LINK_LAUNCHERS: tuple[Spawn, ...] = ("mpiexec", "torchrun")
TASKS = (
    ("environment, noise and advice", ""),
    ("false alarms, and the smallest change to be seen", "--self-test"),
    ("this host's rates, for predictions", "--calibrate"),
)
# The one task that has a use for an option; another would swallow it.
USED_BY = {"trials": "self_test", "directory": "calibrate", "launcher": "calibrate"}


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--self-test", action="store_true", help="A/A comparison of identical work")
    what.add_argument("--calibrate", action="store_true", help="measure this host and keep its rates")
    what.add_argument("--list", action="store_true", help="list what the doctor does and end")
    parser.add_argument("--quick", action="store_true", help="shorter, and coarser")
    parser.add_argument(
        "--seconds",
        type=checked(parse_duration),
        metavar="TIME",
        help="how long to watch the noise (default: 3s), or a trial of the self-test (default: 1s)",
    )
    parser.add_argument("--trials", type=int, metavar="N", help=f"of the self-test (default: {TRIALS})")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="whose storage is calibrated (default: here)")
    parser.add_argument(
        "--launcher",
        choices=("auto", *LINK_LAUNCHERS, "none"),
        help="ranks for the calibration of the link (default: mpiexec where it is, else torchrun)",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    for name, task in USED_BY.items():
        if getattr(args, name) is not None and not getattr(args, task):
            raise TesseraError(f"--{name} is of --{task.replace('_', '-')}", do="leave it out, or add that")
    if args.calibrate and args.seconds is not None:
        raise TesseraError("--calibrate has no use for --seconds", do="--quick makes it shorter")
    if args.list:
        with destination(args.output) as stream:
            render([Column("what"), Column("option")], TASKS, args.form, stream)
        return OK
    if args.self_test:
        return _self_test(args)
    return _calibrate(args) if args.calibrate else _examine(args)


def _examine(args: argparse.Namespace) -> int:
    from tessera.measure.environment import environment
    from tessera.measure.noise import advice, measure_noise

    seen = environment()
    noise = measure_noise(args.seconds or (0.5 if args.quick else 3.0))
    todo = advice(noise, seen)
    with destination(args.output) as stream:
        if args.form == "json":
            json.dump({"environment": seen, "noise": asdict(noise), "advice": todo}, stream, indent=1)
            stream.write("\n")
        elif args.form == "csv":
            rows = [
                *(("environment", name, _shown(value)) for name, value in seen.items()),
                *(("noise", name, value) for name, value in asdict(noise).items()),
                *(("advice", "", line) for line in todo),
            ]
            render([Column("part"), Column("name"), Column("value")], rows, "csv", stream)
        else:
            between = "\n" if args.form == "markdown" else ""
            facts = [(name, _shown(value)) for name, value in seen.items()]
            render([Column("environment"), Column("value")], facts, args.form, stream)
            stream.write(between)
            columns = [Column(f"noise over {noise.seconds:.1f} s"), Column("value", "right")]
            render(columns, _noise_rows(noise), args.form, stream)
            stream.write(between)
            stream.writelines(f"- {line}\n" for line in todo or ["quiet: nothing to mend"])
    return OK


def _noise_rows(noise: Noise) -> list[tuple[str, str]]:
    return [
        ("fixed work, median", format_seconds(noise.median)),
        ("half of all within", format_percent(noise.spread)),
        ("one in a hundred above", f"+{noise.tail:.0%}"),
        ("drift", format_percent(noise.drift, signed=True)),
        ("kept off its core", format_percent(noise.hidden)),
        ("taken by the hypervisor", format_percent(noise.steal)),
        ("load per core", f"{noise.load:.2f}"),
    ]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _self_test(args: argparse.Namespace) -> int:
    from tessera.launch.alternate import FEW_INTERPRETERS, INTERPRETERS
    from tessera.launch.selftest import self_test

    trials = TRIALS if args.trials is None else args.trials
    if trials < 2:
        raise TesseraError("a self-test needs trials", got=trials, allowed="2 or more")
    with StatusLine() as say:
        found = self_test(
            trials=trials,
            seconds=args.seconds or (0.3 if args.quick else 1.0),
            interpreters=FEW_INTERPRETERS if args.quick else INTERPRETERS,
            progress=say,
        )
    plain = [asdict(test) for test in found]
    with destination(args.output) as stream:
        if args.form == "json":
            json.dump(plain, stream, indent=1)
            stream.write("\n")
        elif args.form == "csv":
            render([Column(name) for name in plain[0]], [list(one.values()) for one in plain], "csv", stream)
        else:
            names = ("layout", "false alarms", "spread of the ratio", "smallest change to be seen")
            rows = [
                (
                    test.layout,
                    f"{test.false_alarms} of {test.trials}",
                    format_percent(test.spread),
                    format_percent(test.smallest),
                )
                for test in found
            ]
            title = f"identical work, {found[0].seconds:g} s a trial, changes of {found[0].threshold:.0%} matter"
            render([Column(names[0]), *(Column(n, "right") for n in names[1:])], rows, args.form, stream, title)
    return OK


def _calibrate(args: argparse.Namespace) -> int:
    from tessera.machine.calibrate import calibrate
    from tessera.machine.hosts import save_host
    from tessera.measure.environment import environment, host_fingerprint

    directory = args.directory or Path()
    if not directory.is_dir():
        raise TesseraError("no such directory", got=str(directory))
    with StatusLine() as say:
        transport = _transport(args.launcher or "auto", say)
        machine = calibrate(directory, say, transport, effort=0.25 if args.quick else 1.0)
        save_host(machine, host_fingerprint(environment()))
    with destination(args.output) as stream:
        if args.form == "json":
            json.dump(machine.to_dict(), stream, indent=1)
            stream.write("\n")
        elif args.form == "csv":
            rows = [(name, n, rate) for name, rates in machine.figures().items() for n, rate in enumerate(rates, 1)]
            render([Column("figure"), Column("workers"), Column("value")], rows, "csv", stream)
        else:
            heads = ("1 worker", f"all {machine.workers.size}", "latency")
            columns = [Column("figure"), *(Column(head, "right") for head in heads)]
            title = f"{machine.title}, {format_bytes(machine.global_memory)}"
            render(columns, _rate_rows(machine), args.form, stream, title)
            stream.write("\n" if args.form == "markdown" else "")
            stream.writelines(f"- {note}\n" for note in machine.notes)
    print("kept: predictions use these rates from now on", file=sys.stderr)
    return OK


def _rate_rows(machine: Machine) -> list[Sequence[str]]:
    from tessera.machine.machine import LINKS

    rows: list[Sequence[str]] = [[f"compute, {dtype}", *_both(r, "FLOP/s"), ""] for dtype, r in machine.flops.items()]
    for kind, link in machine.links.items():
        rows.append(
            [LINKS[kind][0], *_both(link.bandwidth, "B/s"), format_seconds(link.latency) if link.latency else ""]
        )
    return rows


def _both(rates: tuple[float, ...], unit: str) -> list[str]:
    """The rate of one worker, and of all together where that was measured."""
    return [format_rate(rates[0], unit), format_rate(rates[-1], unit) if len(rates) > 1 else ""]


def _transport(launcher: str, say: Callable[[str], None]) -> list[dict[str, float]] | None:
    """Transfers between two ranks; None where no ranks are wanted or to be had."""
    from tessera.launch import LaunchConfig, Workers

    for spawn in LINK_LAUNCHERS:
        if launcher not in ("auto", spawn):
            continue
        say(f"transfers between two ranks of {spawn}")
        try:
            with Workers(LaunchConfig(spawn=spawn, workers=2, time_limit=120.0)) as workers:
                found: list[dict[str, float]] = workers.run("tessera.transport.pingpong:pingpong", LINK_SIZES, 200)[0]
                return found
        except MissingExtra:
            if launcher != "auto":
                raise
    return None
