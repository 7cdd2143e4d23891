"""`tessera infer --tune`: search the best candidate, measure it again, and store all records."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from tessera.cli.options import format_command_line, make_launch
from tessera.cli.progress import StatusLine
from tessera.errors import Refused, TesseraError
from tessera.inference.cases import AXES
from tessera.inference.configs import Config
from tessera.inference.engines import ENGINES
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

TUNED_AXES = ("engine", "batch_size", "num_replicas", "cores_per_replica")  # axes that tuning chooses
INAPPLICABLE_AXES = ("mode", "target_rate", "generator", "by_operator", "device_iterations")


def run_tuning(args: argparse.Namespace, config: Config | None, axes: dict[str, list[Any]], sampling: Sampling) -> int:
    """Tune, measure the best candidate again with full sampling, store all records and print the result."""
    for name in INAPPLICABLE_AXES:
        if name in axes:
            raise TesseraError(f"{AXES[name].flag} does not apply to --tune", do="omit it")
    axes.pop("max_latency", None)  # the latency bound is part of the tuning goal
    settings = _make_settings(config, axes)
    goal = TuningGoal(kind=args.goal or TUNING_GOALS[0], max_latency=args.max_latency)
    engines = find_usable_engines(
        settings, axes.get("engine", ()), say=lambda text: print(f"note: {text}", file=sys.stderr)
    )
    places = _choose_placements(axes)
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
                budget=args.tune_time or DEFAULT_TUNE_TIME,
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
    *others, last = axes.get("engine", ENGINES)
    for engine in others:
        try:
            return Settings.of({**common, "engine": engine})
        except Refused:  # another engine may support the settings
            continue
    return Settings.of({**common, "engine": last})


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
