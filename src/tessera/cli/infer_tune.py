"""`tessera infer --tune`: the race, its best, and the front of throughput and latency as a table and a plot."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from tessera.cli.infer_options import TUNE_TIME, sampling_of
from tessera.cli.infer_tables import rates_table, summary_lines
from tessera.cli.options import command_line, launch_of
from tessera.cli.progress import StatusLine
from tessera.cli.records_table import write_records
from tessera.errors import Refused, TesseraError
from tessera.inference.bench import HERE
from tessera.inference.cases import launch
from tessera.inference.configs import Config
from tessera.inference.engines import ENGINES
from tessera.inference.replicas.placement import Placement, cores_here
from tessera.inference.settings import Settings
from tessera.inference.tune.candidates import BATCHES, placements
from tessera.inference.tune.goal import GOALS, Goal
from tessera.inference.tune.race import Standing
from tessera.inference.tune.scatter import DOT, FRONT, scatter
from tessera.inference.tune.tuning import Tuned, tune, usable_engines
from tessera.launch import LaunchConfig
from tessera.measure.allocator import DEFAULT
from tessera.report.destination import destination
from tessera.report.figures import format_rate, format_seconds
from tessera.report.tables import Column, Form, render
from tessera.results.record import Record, exit_code
from tessera.results.store import Store
from tessera.suites.features import feature
from tessera.suites.worker import measure_here

# What a tuning chooses itself, or has no use for.
CHOSEN = ("engine", "batch_size", "num_replicas", "cores_per_replica")
MEANINGLESS = ("mode", "target_rate", "generator", "by_operator", "device_iterations")


def run_tuning(args: argparse.Namespace, config: Config | None, axes: dict[str, list[Any]]) -> int:
    """Race the candidates, measure the best one at length, store and show all."""
    for name in MEANINGLESS:
        if name in axes:
            raise TesseraError(f"--tune has no use for --{name.replace('_', '-')}", do="leave it out")
    settings = _settings(config, axes)
    goal = Goal(kind=args.goal or GOALS[0], max_latency=args.max_latency)
    engines = usable_engines(settings, axes.get("engine", ()), say=lambda text: print(f"note: {text}", file=sys.stderr))
    places = _places(axes)
    base = launch_of(args)
    with Store(args.store) as store, StatusLine() as say:
        run = store.start_run(args.run, command=command_line(sys.argv), suite="infer tune")
        try:
            tuned = tune(
                settings,
                goal,
                engines=engines,
                places=places,
                batches=axes.get("batch_size", BATCHES),
                budget=args.tune_time or TUNE_TIME,
                launch=base,
                env=axes.get("env", [{}])[0],
                say=lambda text: say(f"tuning: {text}"),
            )
            for record in tuned.records:
                store.add(run, record)
            case = tuned.cases[tuned.best.candidate]
            say(f"tuning: {tuned.best.candidate}: measured at length")
            launch(case, base)
            best = measure_here(HERE, feature("infer").run, case, sampling_of(args, config))
            store.add(run, best)
        except BaseException:
            if not store.counts(run):
                store.delete_run(run)
            raise
        run = store.finish_run(run)
    with destination(args.output) as stream:
        if args.form in ("json", "csv"):
            others = [record for record in tuned.records if record.case.key != best.case.key]
            write_records(run, [best, *others], args.form, stream)
        else:
            show(tuned, best, args.form, stream, again(tuned, base))
            if args.form == "terminal":
                stream.write(f"stored as run {run.name}; see `tessera report {run.name}`\n")
    return exit_code([best])


def _settings(config: Config | None, axes: dict[str, list[Any]]) -> Settings:
    """What all candidates have in common; each of these has one value."""
    given = {name: values for name, values in axes.items() if name not in (*CHOSEN, "env", "force")}
    for name, values in given.items():
        if len(values) > 1:
            raise TesseraError(f"--tune takes one {name.replace('_', ' ')}", got=values)
    base = {name: value for name, value in config.settings.items() if name not in CHOSEN} if config else {}
    common = {**base, **{name: values[0] for name, values in given.items()}}
    *others, last = axes.get("engine", ENGINES)
    for engine in others:
        try:
            return Settings.of({**common, "engine": engine})
        except Refused:  # by this engine: another one may take them
            continue
    return Settings.of({**common, "engine": last})


def _places(axes: dict[str, list[Any]]) -> list[tuple[int, int]]:
    """Replicas and threads to choose from; more than there are cores for only where that is forced, and said."""
    found = placements(cores_here(), axes.get("num_replicas", ()), axes.get("cores_per_replica", ()))
    for replicas, cores in found:
        placement = Placement(num_replicas=replicas, cores_per_replica=cores, force="force" in axes)
        for note in placement.check():
            print(f"warning: {note}", file=sys.stderr)
    return found


def show(tuned: Tuned, best: Record, form: Form, stream: TextIO, command: str) -> None:
    """The best, the front as a table and a plot, and what became of the others."""
    rates_table([best], form, stream)
    if form == "terminal":
        stream.writelines(f"{line}\n" for line in summary_lines(best))
        stream.writelines(f"- {note}\n" for note in best.notes)
        if best.status != "ok":
            stream.write(f"{best.status.replace('_', ' ')}: {best.reason}\n")
        stream.write(f"\nbest for {tuned.goal.kind}: {tuned.best.candidate}\n  {command}\n")
        if not tuned.within_bound:
            stream.write("no candidate keeps to --max-latency: this one comes nearest to it\n")
    between = "\n" if form == "markdown" else ""
    stream.write(between)
    on_front = tuned.front()
    render(_COLUMNS, [_row(standing) for standing in on_front], form, stream, "Pareto front of throughput and latency")
    if form == "terminal":
        points = [(one.latency, one.rate, one in on_front) for one in tuned.measured]
        for line in scatter(points, x_label=format_seconds, y_label=lambda rate: format_rate(rate, "images/s")):
            stream.write(f"{line}\n")
        stream.write(f"images/s over the latency of a batch (p90): {FRONT} on the front, {DOT} behind it\n\n")
    others = [standing for standing in tuned.standings if standing not in on_front]
    if others:
        stream.write(between)
        render([*_COLUMNS, Column("")], [[*_row(one), one.left] for one in others], form, stream, "the others")


_COLUMNS = [
    Column("engine"),
    Column("replicas", "right"),
    Column("threads", "right"),
    Column("batch", "right"),
    Column("images/s", "right"),
    Column("p90", "right"),
    Column("bursts", "right"),
]


def _row(standing: Standing) -> Sequence[str]:
    candidate = standing.candidate
    team = candidate.team
    figures = (format_rate(standing.rate, ""), format_seconds(standing.latency)) if standing.bursts else ("", "")
    return [team.engine, *map(str, (team.replicas, team.threads, candidate.batch)), *figures, str(len(standing.bursts))]


def again(tuned: Tuned, base: LaunchConfig) -> str:
    """The command that runs the best one, launched as it was."""
    case = tuned.cases[tuned.best.candidate]
    words = ["tessera", "infer", "--model", case.name]
    for name, value in case.params.items():
        option = f"--{name.replace('_', '-')}"
        if name == "env":
            words += [word for key, text in value.items() for word in ("-x", f"{key}={text}")]
        elif isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        else:
            words += [option, str(value)]
    words += [] if base.pin else ["--no-pin"]
    words += [] if base.allocator == DEFAULT else ["--allocator", base.allocator]
    return shlex.join(words)
