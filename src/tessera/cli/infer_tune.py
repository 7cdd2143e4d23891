"""`tessera infer --tune`: search the best candidate, measure it again, and store all records."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TextIO

from tessera.cli.options import format_command_line, make_launch
from tessera.cli.progress import StatusLine
from tessera.device import CPU
from tessera.errors import Refused, TesseraError
from tessera.inference.cases import AXES
from tessera.inference.configs import Config
from tessera.inference.engines import ENGINES, check_engine_device
from tessera.inference.replicas.placement import Placement, count_cores
from tessera.inference.settings import Settings
from tessera.inference.tune.race import BATCH_SIZES, DEFAULT_TUNE_TIME, TUNING_GOALS, TuningGoal, list_placements
from tessera.inference.tune.table import write_tuning
from tessera.inference.tune.tuning import TuningResult, find_usable_engines, tune_network
from tessera.launch import LaunchConfig
from tessera.launch.worker import RunContext
from tessera.measure.allocator import DEFAULT_ALLOCATOR
from tessera.measure.samples import Sampling
from tessera.report.record_tables import print_records
from tessera.report.tables import OutputFormat
from tessera.results.record import Record, compute_exit_code
from tessera.results.store import Store
from tessera.suites.features import get_feature
from tessera.suites.worker import measure_here

TUNED_AXES = ("engine", "device", "batch_size", "num_replicas", "cores_per_replica")  # axes that tuning chooses
INAPPLICABLE_AXES = ("mode", "target_rate", "generator", "by_operator", "device_iterations")


def run_tuning(args: argparse.Namespace, config: Config | None, axes: dict[str, list[Any]], sampling: Sampling) -> int:
    """Tune, measure the best candidate again with full sampling, store all records and print the result."""
    for name in INAPPLICABLE_AXES:
        if name in axes:
            raise TesseraError(f"{AXES[name].flag} does not apply to --tune", do="omit it")
    axes.pop("max_latency", None)  # the latency bound is part of the tuning goal
    settings = _make_settings(config, axes)
    goal = TuningGoal(kind=args.goal or TUNING_GOALS[0], max_latency=args.max_latency)
    devices = axes.get("device", (CPU,))
    engines = find_usable_engines(
        settings, axes.get("engine", ()), say=lambda text: print(f"note: {text}", file=sys.stderr), devices=devices
    )
    engines = select_engines_with_devices(engines, devices, required="engine" in axes)
    places = _choose_placements(axes)
    tune_time = args.tune_time or DEFAULT_TUNE_TIME
    base = make_launch(args)
    with Store(args.store) as store, StatusLine() as say:
        run = store.start_run(args.run, command=format_command_line(sys.argv), suite="infer tune")
        try:
            tuned = tune_network(
                settings,
                goal,
                engines=engines,
                places=places,
                batches=axes.get("batch_size", BATCH_SIZES),
                budget=max(tune_time - sampling.budget, tune_time / 2),  # the rest measures the best candidate again
                devices=devices,
                launch=base,
                env=axes.get("env", [{}])[0],
                say=lambda text: say(f"tuning: {text}"),
            )
            for record in tuned.records:
                store.add(run, record)
            case = tuned.cases[tuned.best.candidate]
            say(f"tuning: {tuned.best.candidate}: measuring with full sampling")
            best = measure_here(RunContext(launch=base), get_feature("infer").run, case, sampling)
            store.add(run, best)
        except BaseException:
            if not store.count_statuses(run):
                store.delete_run(run)
            raise
        run = store.finish_run(run)

    def write(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
        write_tuning(tuned, records[0], output_format, stream, format_command(tuned, base))
        if output_format == "terminal":
            stream.write(f"stored as run {run.name}; see `tessera report {run.name}`\n")

    others = [record for record in tuned.records if record.case.key != best.case.key]
    print_records(run, [best, *others], args.output_format, args.output, write)
    return compute_exit_code([best])


def _make_settings(config: Config | None, axes: dict[str, list[Any]]) -> Settings:
    """Return the settings that all candidates share."""
    given = {name: values for name, values in axes.items() if name not in (*TUNED_AXES, "env", "force")}
    for name, values in given.items():
        if len(values) > 1:
            raise TesseraError(f"--tune takes one value of {AXES[name].flag}", got=values)
    base = {name: value for name, value in config.settings.items() if name not in TUNED_AXES} if config else {}
    common = {**base, **{name: values[0] for name, values in given.items()}}
    *others, last = product(axes.get("engine", ENGINES), axes.get("device", (CPU,)))
    for engine, device in others:
        try:
            return Settings.of({**common, "engine": engine, "device": device})
        except Refused:  # another engine may support the settings
            continue
    return Settings.of({**common, "engine": last[0], "device": last[1]})


def select_engines_with_devices(engines: Sequence[str], devices: Sequence[str], *, required: bool) -> list[str]:
    """Return the engines that run on one of the devices; every device must exist here for one engine.

    With `required`, the engines were chosen by the user, and all devices that they support must exist for each.
    """
    usable: dict[str, list[str]] = {}
    errors: list[TesseraError] = []
    for engine in engines:
        for device in devices:
            if not ENGINES[engine].supports_device(device):
                continue
            try:
                check_engine_device(engine, device)
                usable.setdefault(device, []).append(engine)
            except TesseraError as error:
                if required:
                    raise
                errors.append(error)
    for device in devices:
        if device not in usable:
            raise errors[0] if errors else TesseraError("no engine runs on the device", got=device)
    return [engine for engine in engines if any(engine in names for names in usable.values())]


def _choose_placements(axes: dict[str, list[Any]]) -> list[tuple[int, int]]:
    """Return the candidate pairs (replicas, threads per replica); warn about pairs that require too many cores."""
    places = list_placements(count_cores(), axes.get("num_replicas", ()), axes.get("cores_per_replica", ()))
    for replicas, cores in places:
        placement = Placement(num_replicas=replicas, cores_per_replica=cores, force="force" in axes)
        for note in placement.check():
            print(f"warning: {note}", file=sys.stderr)
    return places


def format_command(tuned: TuningResult, base: LaunchConfig) -> str:
    """Return the command line that runs the best candidate with the launch options of the tuning."""
    case = tuned.cases[tuned.best.candidate]
    words = ["tessera", "infer", "--model", case.name]
    for name, value in case.params.items():
        flag = AXES[name].flag
        if isinstance(value, Mapping):
            words += [word for key, text in value.items() for word in (flag, f"{key}={text}")]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            words += [flag, str(value)]
    words += [] if base.pin else ["--no-pin"]
    words += [] if base.allocator == DEFAULT_ALLOCATOR else ["--allocator", base.allocator]
    return shlex.join(words)
