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
from tessera.cli.calibration import LINK_LAUNCHERS, QUICK_EFFORT, calibrate_and_store, store_rates
from tessera.cli.options import OUTPUT_OPTIONS, check_given_options
from tessera.cli.progress import StatusLine
from tessera.device import CPU, parse_device
from tessera.errors import EXIT_OK, EXIT_REGRESSION, TesseraError
from tessera.report.blocks import Column, Columns, Heading, Table, tabulate
from tessera.report.figures import format_bytes, format_percent, format_rate, format_seconds
from tessera.report.tables import print_result, print_table
from tessera.suites.suite import parse_duration

if TYPE_CHECKING:
    from tessera.ab.self_test import SelfTestResult
    from tessera.device.driver import DriverReading
    from tessera.machine import Machine
    from tessera.measure.noise import NoiseReport

EPILOG = """\
examples:
  tessera doctor                   environment, noise and advice
  tessera doctor --self-test       identical work compared with itself: false alarms, and the smallest detectable change
  tessera doctor --device cuda:0   checks of an accelerator: run this first on a new device
  tessera doctor --calibrate       rates of this host (about a minute), for predictions beside measured times
  tessera doctor --calibrate --device cuda:0   rates of an accelerator

exit codes: 0 fit for measurements, 1 too noisy (or a check of --device failed), 2 bad input or a busy machine
"""

DEFAULT_TRIALS = 25
TASK_ROWS = (
    ("environment, noise and advice", ""),
    ("false alarms, and the smallest detectable change", "--self-test"),
    ("this host's rates, for predictions", "--calibrate"),
    ("checks of a device", "--device"),
    ("rates of a device, for predictions", "--calibrate --device"),
)
TASK_EXAMINE, TASK_SELF_TEST, TASK_CALIBRATE, TASK_DEVICE = "the default task", "--self-test", "--calibrate", "--device"
TASK_CALIBRATE_DEVICE = "--calibrate --device"


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
        help="measurement of the compute and transfer rates of this host, or of --device, stored for predictions",
    ),
    Option(
        name="device",
        parse=parse_device,
        applies_to=(TASK_DEVICE, TASK_CALIBRATE, TASK_CALIBRATE_DEVICE),
        help="device to check (times, results, copies, overlap, memory figures; exit code 1 if a check fails), or to "
        "calibrate",
    ),
    Option(name="list", action="flag", exclusive="task", help="list of the tasks"),
    Option(
        name="quick",
        action="flag",
        applies_to=(TASK_EXAMINE, TASK_SELF_TEST, TASK_CALIBRATE, TASK_CALIBRATE_DEVICE),
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
        name="force",
        action="flag",
        applies_to=(TASK_CALIBRATE, TASK_CALIBRATE_DEVICE),
        help="storing of rates that other programs disturbed",
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
    calibrates_device = args.calibrate and args.device not in (None, CPU)
    chosen = {
        TASK_SELF_TEST: args.self_test,
        TASK_CALIBRATE_DEVICE: calibrates_device,
        TASK_CALIBRATE: args.calibrate,
        TASK_DEVICE: args.device,
    }
    task = next((name for name, value in chosen.items() if value), TASK_EXAMINE)
    check_given_options(args, [task])
    if args.list:
        print_table(Table(["what", "option"], TASK_ROWS), args.output_format, args.output)
        return EXIT_OK
    if args.self_test:
        return _run_self_test(args)
    if calibrates_device:
        return _calibrate_device(args)
    if args.calibrate:
        return _run_calibration(args)
    return _check_device(args) if args.device else _print_examination(args)


def _print_examination(args: argparse.Namespace) -> int:
    from tessera.measure.environment import describe_environment
    from tessera.measure.noise import judge_noise, list_noise_advice, measure_noise

    environment = describe_environment()
    noise = measure_noise(args.seconds or (0.5 if args.quick else 3.0))
    todo = list_noise_advice(noise, environment)
    fit, verdict = judge_noise(noise)
    facts = [(name, _format_environment_value(value)) for name, value in environment.items()]
    rows = [
        *(("environment", *fact) for fact in facts),
        *(("noise", name, value) for name, value in asdict(noise).items()),
        *(("advice", "", line) for line in todo),
        ("verdict", "fit" if fit else "not fit", verdict),
    ]
    print_result(
        args.output_format,
        args.output,
        data={"environment": environment, "noise": asdict(noise), "advice": todo, "fit": fit, "verdict": verdict},
        rows=Table(["part", "name", "value"], rows),
        blocks=[
            Table(["environment", "value"], facts),
            Table([f"noise over {noise.seconds:.1f} s", Column("value", "number")], _make_noise_rows(noise)),
            [f"- {line}" for line in todo],
            [verdict],
        ],
    )
    return EXIT_OK if fit else EXIT_REGRESSION


def _make_noise_rows(noise: NoiseReport) -> list[tuple[str, str]]:
    return [
        ("time of a fixed computation, median", format_seconds(noise.median)),
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
    reading = device.read_driver()
    passed = not any(check.status == "fail" for check in checks)
    environment = describe_environment(device=description.label)
    rows = [(check.name, check.status, check.reason) for check in checks]
    table = Table(["check", "result", "reason"], rows, f"{description.name}: {description.model}")
    print_result(
        args.output_format,
        args.output,
        data={
            "device": asdict(description),
            "passed": passed,
            "checks": [asdict(check) for check in checks],
            "driver": asdict(reading),
            "environment": environment,
        },
        rows=table,
        blocks=[table, [f"driver: {_format_reading(reading)}"]],
    )
    return EXIT_OK if passed else EXIT_REGRESSION


def _format_reading(reading: DriverReading) -> str:
    """Return the known values of a driver as text.

    >>> from tessera.device.driver import DriverReading
    >>> _format_reading(DriverReading(mhz=1410, temperature=67, throttled=("power cap",)))
    '1410 MHz, 67 °C, throttled (power cap)'
    """
    parts = [f"{reading.mhz:.0f} MHz"] if reading.mhz is not None else []
    parts += [f"{reading.temperature:.0f} °C"] if reading.temperature is not None else []
    if reading.throttled is not None:
        parts.append(f"throttled ({', '.join(reading.throttled)})" if reading.throttled else "not throttled")
    parts += ["energy counter"] if reading.joules is not None else []
    return ", ".join(parts) or "no readings"


def _run_calibration(args: argparse.Namespace) -> int:
    directory = Path(args.directory or ".")
    if not directory.is_dir():
        raise TesseraError(
            "--directory does not exist", got=str(directory), do="create it, or choose another directory"
        )
    launchers = LINK_LAUNCHERS if args.launcher in (None, "auto") else (args.launcher,)
    with StatusLine() as say:
        machine = calibrate_and_store(
            directory,
            () if args.launcher == "none" else launchers,
            say,
            required=len(launchers) == 1,
            effort=QUICK_EFFORT if args.quick else 1.0,
            force=args.force,
        )
    _print_machine(args, machine)
    return EXIT_OK


def _calibrate_device(args: argparse.Namespace) -> int:
    from tessera.device import open_device
    from tessera.device.calibrate import calibrate_device

    device = open_device(args.device)
    with StatusLine() as say:
        machine = calibrate_device(device, say, effort=QUICK_EFFORT if args.quick else 1.0)
    store_rates(machine, device=device.describe().label, force=args.force)
    _print_machine(args, machine)
    return EXIT_OK


def _print_machine(args: argparse.Namespace, machine: Machine) -> None:
    """Print the measured rates of a machine that was stored."""
    rows = [(name, n, rate) for name, rates in machine.list_figures().items() for n, rate in enumerate(rates, 1)]
    heads = ("1 worker", f"all {machine.workers.size}", "latency") if machine.workers.size > 1 else ("rate", "latency")
    columns: list[Heading] = ["figure", *(Column(head, "number") for head in heads)]
    title = f"{machine.title}, {format_bytes(machine.global_memory)}"
    print_result(
        args.output_format,
        args.output,
        data=machine.to_dict(),
        rows=Table(["figure", "workers", "value"], rows),
        blocks=[Table(columns, _make_rate_rows(machine), title), [f"- {note}" for note in machine.notes]],
    )
    print("stored: predictions use these rates from now on", file=sys.stderr)


def _make_rate_rows(machine: Machine) -> list[Sequence[str]]:
    from tessera.machine.machine import LINKS, OVERHEADS

    return [
        *(
            [f"compute, {dtype}", *_format_rates(machine, rates, "FLOP/s"), ""]
            for dtype, rates in machine.flops.items()
        ),
        *(
            [
                LINKS[kind][0],
                *_format_rates(machine, link.bandwidth, "B/s"),
                format_seconds(link.latency) if link.latency else "",
            ]
            for kind, link in machine.links.items()
        ),
        *(
            [OVERHEADS[kind], *_format_rates(machine, (), ""), format_seconds(seconds)]
            for kind, seconds in machine.overheads.items()
        ),
    ]


def _format_rates(machine: Machine, rates: tuple[float, ...], unit: str) -> list[str]:
    """Return the cells of one figure: the rate of one worker and, on several, the total of all of them."""
    one, every = format_rate(rates[0], unit) if rates else "", format_rate(rates[-1], unit) if len(rates) > 1 else ""
    return [one, every] if machine.workers.size > 1 else [one]
