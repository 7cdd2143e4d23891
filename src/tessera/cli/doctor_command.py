"""Description, noise and speed of this machine, and advice.

Without options: the environment as records hold it, the noise of a fixed piece of work over some seconds, and advice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.axes import Option, parse_int
from tessera.cli.options import OUTPUT_OPTIONS, check_given_options
from tessera.cli.progress import StatusLine
from tessera.device import parse_device
from tessera.errors import EXIT_OK, EXIT_REGRESSION, TesseraError
from tessera.report.blocks import Column, Columns, Heading, Table, tabulate
from tessera.report.figures import format_bytes, format_percent, format_rate, format_seconds
from tessera.report.tables import print_result, print_table
from tessera.suites.suite import parse_duration

if TYPE_CHECKING:
    from tessera.ab.self_test import SelfTestResult
    from tessera.launch.config import SpawnMethod
    from tessera.machine import Machine
    from tessera.measure.noise import NoiseReport

EPILOG = """\
examples:
  tessera doctor                   environment, noise and advice
  tessera doctor --self-test       identical work compared with itself: false alarms, and the smallest detectable change
  tessera doctor --device cuda:0   checks of an accelerator: run this first on a new device
  tessera doctor --calibrate       rates of this host (about a minute), for predictions beside measured times
"""

DEFAULT_TRIALS = 25
LINK_LAUNCHERS: tuple[SpawnMethod, ...] = ("mpiexec", "torchrun")
TASK_ROWS = (
    ("environment, noise and advice", ""),
    ("false alarms, and the smallest detectable change", "--self-test"),
    ("this host's rates, for predictions", "--calibrate"),
    ("checks of a device", "--device"),
)
TASK_EXAMINE, TASK_SELF_TEST, TASK_CALIBRATE, TASK_DEVICE = "the default task", "--self-test", "--calibrate", "--device"


OPTIONS = (
    Option(
        name="self_test",
        action="flag",
        exclusive="task",
        help="comparison of identical work: false alarms, and the smallest detectable change",
    ),
    Option(
        name="calibrate",
        action="flag",
        exclusive="task",
        help="measurement of the compute and transfer rates of this host, stored for predictions",
    ),
    Option(
        name="device",
        parse=parse_device,
        exclusive="task",
        help="device to check: times, results, copies, overlap and memory figures; exit code 1 if a check fails",
    ),
    Option(name="list", action="flag", exclusive="task", help="list of the tasks"),
    Option(
        name="quick",
        action="flag",
        applies_to=(TASK_EXAMINE, TASK_SELF_TEST, TASK_CALIBRATE),
        help="quick, less precise run",
    ),
    Option(
        name="seconds",
        parse=parse_duration,
        metavar="TIME",
        applies_to=(TASK_EXAMINE, TASK_SELF_TEST),
        help="duration of the noise measurement, or of each trial of --self-test",
        default_text="3s; with --self-test 1s",
    ),
    Option(
        name="trials",
        parse=parse_int,
        minimum=2,
        applies_to=(TASK_SELF_TEST,),
        help="number of trials of --self-test",
        default_text=str(DEFAULT_TRIALS),
    ),
    Option(
        name="directory",
        metavar="DIR",
        applies_to=(TASK_CALIBRATE,),
        help="directory whose storage --calibrate measures",
        default_text="./",
    ),
    Option(
        name="launcher",
        choices=("auto", *LINK_LAUNCHERS, "none"),
        applies_to=(TASK_CALIBRATE,),
        help="launcher of the ranks whose link --calibrate measures",
        default_text="mpiexec if available, else torchrun",
    ),
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    chosen = {TASK_SELF_TEST: args.self_test, TASK_CALIBRATE: args.calibrate, TASK_DEVICE: args.device}
    task = next((name for name, value in chosen.items() if value), TASK_EXAMINE)
    check_given_options(args, [task])
    if args.list:
        print_table(Table(["what", "option"], TASK_ROWS), args.output_format, args.output)
        return EXIT_OK
    if args.self_test:
        return _run_self_test(args)
    if args.device:
        return _check_device(args)
    return _run_calibration(args) if args.calibrate else _print_examination(args)


def _print_examination(args: argparse.Namespace) -> int:
    from tessera.measure.environment import describe_environment
    from tessera.measure.noise import list_noise_advice, measure_noise

    environment = describe_environment()
    noise = measure_noise(args.seconds or (0.5 if args.quick else 3.0))
    todo = list_noise_advice(noise, environment)
    facts = [(name, _format_environment_value(value)) for name, value in environment.items()]
    rows = [
        *(("environment", *fact) for fact in facts),
        *(("noise", name, value) for name, value in asdict(noise).items()),
        *(("advice", "", line) for line in todo),
    ]
    print_result(
        args.output_format,
        args.output,
        data={"environment": environment, "noise": asdict(noise), "advice": todo},
        rows=Table(["part", "name", "value"], rows),
        blocks=[
            Table(["environment", "value"], facts),
            Table([f"noise over {noise.seconds:.1f} s", Column("value", "number")], _make_noise_rows(noise)),
            [f"- {line}" for line in todo or ["quiet: nothing to fix"]],
        ],
    )
    return EXIT_OK


def _make_noise_rows(noise: NoiseReport) -> list[tuple[str, str]]:
    return [
        ("median time of the fixed work", format_seconds(noise.median)),
        ("interquartile range / median", format_percent(noise.spread)),
        ("99th percentile above the median", f"+{noise.tail:.0%}"),
        ("drift (last third over first third)", format_percent(noise.drift, signed=True)),
        ("time the process did not run", format_percent(noise.hidden)),
        ("steal time (hypervisor)", format_percent(noise.steal)),
        ("load per core", f"{noise.load:.2f}"),
    ]


def _format_environment_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _run_self_test(args: argparse.Namespace) -> int:
    from tessera.ab.runner import INTERPRETERS_PER_SIDE, QUICK_INTERPRETERS_PER_SIDE
    from tessera.ab.self_test import run_self_test

    with StatusLine() as say:
        tests = run_self_test(
            trials=DEFAULT_TRIALS if args.trials is None else args.trials,
            seconds=args.seconds or (0.3 if args.quick else 1.0),
            interpreters=QUICK_INTERPRETERS_PER_SIDE if args.quick else INTERPRETERS_PER_SIDE,
            progress=say,
        )
    plain = [asdict(test) for test in tests]
    columns: Columns[SelfTestResult] = {
        "layout": lambda test: test.layout,
        Column("false alarms", "number"): lambda test: f"{test.false_alarms} of {test.trials}",
        Column("spread of the ratio", "number"): lambda test: format_percent(test.spread),
        Column("smallest detectable change", "number"): lambda test: format_percent(test.smallest),
    }
    title = f"identical work, {tests[0].seconds:g} s a trial, changes of {tests[0].threshold:.0%} matter"
    print_result(
        args.output_format,
        args.output,
        data=plain,
        rows=Table(list(plain[0]), [list(each.values()) for each in plain]),
        blocks=[tabulate(columns, tests, title)],
    )
    return EXIT_OK


def _check_device(args: argparse.Namespace) -> int:
    from tessera.device import open_device
    from tessera.device.checks import check_device
    from tessera.measure.environment import describe_environment

    device = open_device(args.device)
    description = device.describe()
    checks = []
    with StatusLine() as say:
        for check in check_device(device):
            say(f"{check.name}: {check.status}")
            checks.append(check)
    passed = not any(check.status == "fail" for check in checks)
    environment = describe_environment(device=f"{description.name} {description.model}")
    rows = [(check.name, check.status, check.reason) for check in checks]
    table = Table(["check", "result", "reason"], rows, f"{description.name}: {description.model}")
    print_result(
        args.output_format,
        args.output,
        data={
            "device": asdict(description),
            "passed": passed,
            "checks": [asdict(check) for check in checks],
            "environment": environment,
        },
        rows=table,
        blocks=[table],
    )
    return EXIT_OK if passed else EXIT_REGRESSION


def _run_calibration(args: argparse.Namespace) -> int:
    from tessera.machine.calibrate import calibrate_host
    from tessera.machine.catalogue import save_host
    from tessera.measure.environment import compute_host_fingerprint, describe_environment
    from tessera.spatial.scaling.overheads import measure_transfers_and_overheads

    directory = Path(args.directory or ".")
    if not directory.is_dir():
        raise TesseraError(
            "--directory does not exist", got=str(directory), do="create it, or choose another directory"
        )
    launchers = LINK_LAUNCHERS if args.launcher in (None, "auto") else (args.launcher,)
    with StatusLine() as say:
        transfers, overheads = measure_transfers_and_overheads(
            () if args.launcher == "none" else launchers, required=len(launchers) == 1, say=say
        )
        machine = calibrate_host(directory, say, transfers, overheads, effort=0.25 if args.quick else 1.0)
        save_host(machine, compute_host_fingerprint(describe_environment()))
    rows = [(name, n, rate) for name, rates in machine.list_figures().items() for n, rate in enumerate(rates, 1)]
    columns: list[Heading] = [
        "figure",
        *(Column(head, "number") for head in ("1 worker", f"all {machine.workers.size}", "latency")),
    ]
    title = f"{machine.title}, {format_bytes(machine.global_memory)}"
    print_result(
        args.output_format,
        args.output,
        data=machine.to_dict(),
        rows=Table(["figure", "workers", "value"], rows),
        blocks=[Table(columns, _make_rate_rows(machine), title), [f"- {note}" for note in machine.notes]],
    )
    print("stored: predictions use these rates from now on", file=sys.stderr)
    return EXIT_OK


def _make_rate_rows(machine: Machine) -> list[Sequence[str]]:
    from tessera.machine.machine import LINKS, OVERHEADS

    return [
        *([f"compute, {dtype}", *_format_rates(rates, "FLOP/s"), ""] for dtype, rates in machine.flops.items()),
        *(
            [
                LINKS[kind][0],
                *_format_rates(link.bandwidth, "B/s"),
                format_seconds(link.latency) if link.latency else "",
            ]
            for kind, link in machine.links.items()
        ),
        *([OVERHEADS[kind], "", "", format_seconds(seconds)] for kind, seconds in machine.overheads.items()),
    ]


def _format_rates(rates: tuple[float, ...], unit: str) -> list[str]:
    """Return two table cells: the rate of one worker, and the total of all workers (empty if not measured)."""
    return [format_rate(rates[0], unit), format_rate(rates[-1], unit) if len(rates) > 1 else ""]
