"""This machine: what it is, how noisy it is, how fast it is, and what to do about it.

Without options: the environment as records keep it, the noise of a fixed piece of work over some seconds, and advice.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tessera.cli.options import add_output, checked
from tessera.errors import OK, MissingExtra, TesseraError
from tessera.report.destination import destination
from tessera.report.figures import format_bytes, format_percent, format_rate, format_seconds
from tessera.report.tables import Column, render
from tessera.suites.suite import parse_duration

EPILOG = """\
examples:
  tessera doctor                   is this machine fit for measuring?
  tessera doctor --self-test       identical work against itself: false alarms, and the smallest change to be seen
  tessera doctor --calibrate       measure this host's rates (about a minute); predictions then stand beside times
"""

LINK_SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--self-test", action="store_true", help="A/A comparison of identical work")
    what.add_argument("--calibrate", action="store_true", help="measure this host and keep its rates")
    what.add_argument("--list", action="store_true", help="list what the doctor looks at and end")
    parser.add_argument("--quick", action="store_true", help="shorter, and coarser")
    parser.add_argument(
        "--seconds",
        type=checked(parse_duration),
        metavar="TIME",
        help="how long to watch the noise (default: 3s)",
    )
    parser.add_argument("--trials", type=int, default=25, metavar="N", help="of the self-test (default: 25)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="whose storage is calibrated (default: here)",
    )
    parser.add_argument(
        "--launcher",
        choices=("auto", "mpiexec", "torchrun", "none"),
        default="auto",
        help="ranks for the calibration of the link (default: mpiexec where it is, else torchrun)",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        rows = [
            ["environment, noise and advice", "always"],
            ["self-test", "--self-test"],
            ["calibration", "--calibrate"],
        ]
        render([Column("what"), Column("option")], rows, args.form, sys.stdout)
        return OK
    if args.self_test:
        return _self_test(args)
    if args.calibrate:
        return _calibrate(args)
    return _examine(args)


def _examine(args: argparse.Namespace) -> int:
    from tessera.measure.environment import environment
    from tessera.measure.noise import advice, measure_noise

    seen = environment()
    noise = measure_noise(args.seconds or (0.5 if args.quick else 3.0))
    todo = advice(noise, seen)
    figures = {
        "fixed work, median": format_seconds(noise.median),
        "half of all within": format_percent(noise.spread),
        "one in a hundred above": f"+{noise.tail:.0%}",
        "drift": format_percent(noise.drift, signed=True),
        "kept off its core": format_percent(noise.hidden),
        "taken by the hypervisor": format_percent(noise.steal),
        "load per core": f"{noise.load:.2f}",
    }
    with destination(args.output) as stream:
        if args.form == "json":
            json.dump({"environment": seen, "noise": asdict(noise), "advice": todo}, stream, indent=1)
            stream.write("\n")
            return OK
        columns = [Column("environment"), Column("value")]
        render(columns, [[name, _shown(value)] for name, value in seen.items()], args.form, stream)
        render(
            [Column(f"noise over {noise.seconds:.1f} s"), Column("value", "right")],
            list(figures.items()),
            args.form,
            stream,
        )
        for line in todo or ["quiet: nothing to mend"]:
            stream.write(f"- {line}\n")
    return OK


def _self_test(args: argparse.Namespace) -> int:
    from tessera.launch.selftest import self_test

    if args.trials < 2:
        raise TesseraError("a self-test needs trials", got=args.trials, allowed="2 or more")
    with _progress() as say:
        found = self_test(trials=args.trials, seconds=args.seconds or (0.3 if args.quick else 1.0), progress=say)
    names = ("layout", "false alarms", "spread of the ratio", "smallest change to be seen")
    rows = [
        [
            test.layout,
            f"{test.false_alarms} of {test.trials}",
            format_percent(test.spread),
            format_percent(test.smallest),
        ]
        for test in found
    ]
    with destination(args.output) as stream:
        if args.form == "json":
            json.dump([asdict(test) for test in found], stream, indent=1)
            stream.write("\n")
        else:
            title = f"identical work, {found[0].seconds:g} s a trial, changes of {found[0].threshold:.0%} matter"
            render([Column(names[0]), *(Column(n, "right") for n in names[1:])], rows, args.form, stream, title)
    return OK


def _calibrate(args: argparse.Namespace) -> int:
    from tessera.machine.calibrate import calibrate
    from tessera.machine.hosts import save_host
    from tessera.machine.machine import LINKS
    from tessera.measure.environment import environment, host_fingerprint

    if not args.directory.is_dir():
        raise TesseraError("no such directory", got=str(args.directory))
    with _progress() as say:
        transport = _transport(args.launcher, say)
        machine = calibrate(args.directory, say, transport, effort=0.25 if args.quick else 1.0)
    path = save_host(machine, host_fingerprint(environment()))
    rows = [
        *([f"compute, {dtype}", *_table(rates, "FLOP/s")] for dtype, rates in machine.flops.items()),
        *([LINKS[kind][0], *_table(link.bandwidth, "B/s")] for kind, link in machine.links.items()),
    ]
    with destination(args.output) as stream:
        if args.form == "json":
            json.dump(machine.to_dict(), stream, indent=1)
            stream.write("\n")
            return OK
        columns = [
            Column("figure"),
            Column("1 worker", "right"),
            Column(f"{machine.workers.size} workers", "right"),
        ]
        render(columns, rows, args.form, stream, title=f"{machine.title}, {format_bytes(machine.global_memory)}")
        if "link" in machine.links:
            stream.write(f"link latency: {format_seconds(machine.links['link'].latency)}\n")
        for note in machine.notes:
            stream.write(f"- {note}\n")
    print(f"kept in {path.name} of the data directory; predictions use it from now on", file=sys.stderr)
    return OK


def _transport(launcher: str, say: Callable[[str], None]) -> list[dict[str, float]] | None:
    """Transfers between two ranks; None where no ranks are wanted or to be had."""
    from tessera.launch import LaunchConfig, Workers

    chosen = ("mpiexec", "torchrun") if launcher == "auto" else (launcher,)
    for spawn in chosen:
        if spawn == "none":
            return None
        say(f"transfers between two ranks of {spawn}")
        try:
            with Workers(LaunchConfig(spawn=spawn, workers=2, time_limit=120.0)) as workers:  # type: ignore[arg-type]
                found: list[dict[str, float]] = workers.run("tessera.transport.pingpong:pingpong", LINK_SIZES, 200)[0]
                return found
        except MissingExtra:
            if launcher != "auto":
                raise
    return None


def _table(rates: tuple[float, ...], unit: str) -> list[str]:
    return [format_rate(rates[0], unit), format_rate(rates[-1], unit) if len(rates) > 1 else ""]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class _progress:
    """One line that changes on a terminal; a line each otherwise."""

    def __enter__(self) -> Callable[[str], None]:
        self._status: Any = None
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("starting")
            self._status.start()
        return self._say

    def _say(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()
