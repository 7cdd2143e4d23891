"""Throughput and latency of a whole network, by engine, number of replicas and batch size.

A network runs in one of several engines, on replicas that are pinned processes. All replicas start a window together;
their rates are summed over the time in which all of them compute. Before an engine is timed, its output is compared
with the output of torch. `--tune` finds the best engine, replicas, threads and batch size; `--by-operator` times every
operator.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tessera.axes import Option, group_options, parse_int
from tessera.cli.execute import execute_and_print, make_plan, print_cases
from tessera.cli.options import (
    LIST_CASES_OPTION,
    OUTPUT_OPTIONS,
    RUN_OPTIONS,
    SAMPLING_OPTIONS,
    STORE_OPTIONS,
    SWEEP_OPTION,
    WORKER_OPTIONS,
    adapt_options,
    check_given_options,
    omit_options,
)
from tessera.device import CPU
from tessera.errors import EXIT_OK, EXIT_REGRESSION, MissingExtra, TesseraError
from tessera.inference.cases import AXES, cases, get_task
from tessera.inference.configs import Config, load_config
from tessera.inference.engines import check_engine_device, get_engine_entry
from tessera.inference.networks.loading import ONNX_SUFFIX, TIMM_PREFIX
from tessera.inference.parsing import ALL_SIZES, parse_yes_no
from tessera.inference.replicas.placement import parse_env_options
from tessera.inference.tables import build_choices_table, write_inference_records
from tessera.inference.tune.race import DEFAULT_TUNE_TIME, TUNING_GOALS
from tessera.launch.job import get_current_job
from tessera.measure.samples import Sampling
from tessera.report.tables import print_table
from tessera.results.record import Case, compute_exit_code
from tessera.suites.suite import parse_duration

DEFAULT_BUDGET_SECONDS, DEFAULT_TARGET, DEFAULT_WARMUP_WINDOWS = 10.0, 0.02, 2
QUICK_BUDGET_SECONDS, QUICK_TARGET = 2.0, 0.10
DEFAULT_SHOWN_LAYERS = 12
MODE_TUNE, MODE_BY_OPERATOR, MODE_MEASURE = "--tune", "--by-operator", "a measurement without --tune"
# Time for export, compilation and comparison with torch; the largest networks take longer.
PREPARATION_SECONDS = 60.0
OPTIONS = (
    Option(
        name="config", metavar="NAME|FILE", group="network", help="named settings (see --list) or a TOML file of them"
    ),
    *AXES,
    SWEEP_OPTION,
    replace(LIST_CASES_OPTION, help="list of the cases; without --model and --config, of configs, engines and modes"),
    Option(
        name="top",
        parse=parse_int,
        minimum=1,
        applies_to=(MODE_BY_OPERATOR,),
        group="load",
        help="number of layers that --by-operator shows",
        default_text=str(DEFAULT_SHOWN_LAYERS),
    ),
    *group_options(
        "tuning",
        Option(name="tune", action="flag", help="search for the best engine, replicas, threads and batch"),
        Option(
            name="goal",
            choices=TUNING_GOALS,
            applies_to=(MODE_TUNE,),
            help="goal of --tune",
            default_text=TUNING_GOALS[0],
        ),
        Option(
            name="tune_time",
            parse=parse_duration,
            metavar="TIME",
            applies_to=(MODE_TUNE,),
            help="time limit of --tune",
            default_text=f"{DEFAULT_TUNE_TIME:g}s",
        ),
    ),
    *group_options(
        "replicas",
        Option(name="num_instances", parse=parse_int, help="same as --num-replicas: every replica is a process"),
        Option(
            name="numa_aware",
            parse=parse_yes_no,
            metavar="yes|no",
            default_text="yes",
            help="pinning of replicas to cores; no is the same as --no-pin",
        ),
    ),
    *adapt_options(
        SAMPLING_OPTIONS,
        target={"default_text": f"{DEFAULT_TARGET:.0%}"},
        budget={"default_text": f"{DEFAULT_BUDGET_SECONDS:g}s"},
        warmup={"help": "number of warm-up windows", "default_text": str(DEFAULT_WARMUP_WINDOWS)},
        iterations={"help": "number of windows, in place of --target and --budget"},
        launches={"applies_to": (MODE_MEASURE,)},
        quick={
            "help": "quick, less precise run: 1 launch, "
            f"target {QUICK_TARGET:.0%}, budget {QUICK_BUDGET_SECONDS:g}s per case"
        },
    ),
    *omit_options(WORKER_OPTIONS, "threads"),
    *STORE_OPTIONS,
    *adapt_options(RUN_OPTIONS, resume={"applies_to": (MODE_MEASURE,)}),
    *OUTPUT_OPTIONS,
)
EPILOG = """\
examples:
  tessera infer --model resnet50 --batch-size 1,8 --num-replicas 2
  tessera infer --model resnet50 --engine torch-eager,onnxruntime,openvino --batch-size 1..32
  tessera infer --config resnet50 --data generated --batch-size 8 --iterations 20 --num-io-tiles 64 --num-replicas 2
  tessera infer --config efficientnet-b0 --precision int8 --engine onnxruntime --batch-size all
  tessera infer --model efficientnet_b0 --tune --goal throughput --max-latency 50ms
  tessera infer --model resnet50 --mode server --max-latency 200ms
  tessera infer --model resnet50 --engine openvino --by-operator
  tessera infer --model net.onnx --data photos/ --batch-size 4
"""


def run(args: argparse.Namespace) -> int:
    config = None if args.config is None else load_config(args.config)
    if args.list and config is None and args.model is None:
        print_table(build_choices_table(), args.output_format, args.output)
        return EXIT_OK
    job = get_current_job()
    if job is not None:
        raise TesseraError(
            f"`tessera infer` cannot run inside a {job.kind} job, because it starts its replicas itself",
            do="start it outside of the job, with --num-replicas",
        )
    _check_options(args)
    args.no_pin = args.no_pin or args.numa_aware is False
    values = _read_axis_values(args, config)
    if args.tune:
        from tessera.cli.infer_tune import run_tuning

        return run_tuning(args, config, values, make_sampling(args, config))
    selected = cases([args.config] if args.config else [], **values)
    if args.list:
        return print_cases(selected, args)
    _check_usable(selected)
    plan = make_plan(args, selected, sampling=make_sampling(args, config), preparation_seconds=PREPARATION_SECONDS)
    write = partial(write_inference_records, top=args.top or DEFAULT_SHOWN_LAYERS)
    records = execute_and_print(plan, args, suite="infer", write=write)
    if any("held" in record.metrics and not record.metrics["held"].value for record in records):
        return EXIT_REGRESSION
    return compute_exit_code(records)


def _check_options(args: argparse.Namespace) -> None:
    """Raise an error for options that cannot be combined."""
    modes = [name for name, chosen in ((MODE_TUNE, args.tune), (MODE_BY_OPERATOR, args.by_operator)) if chosen]
    check_given_options(args, modes if args.tune else [*modes, MODE_MEASURE])
    if args.tune and args.list:
        raise TesseraError("--list cannot be combined with --tune", do="omit one of them")
    for name in ("target", "budget") if "iterations" in args.given else ():
        if name in args.given:
            raise TesseraError(f"--{name} cannot be combined with --iterations", do="omit one of them")


def _read_axis_values(args: argparse.Namespace, config: Config | None) -> dict[str, list[Any]]:
    """Return the checked axis values of the command line; `--batch-size all` is replaced by the sizes of the config."""
    if config is None and args.model is None:
        raise TesseraError("no network is given", do="give --model or --config; see `tessera infer --list`")
    values = AXES.read_values(vars(args), args.sweep)
    if values.get("batch_size") == [ALL_SIZES]:
        if config is None or not config.batch_sizes:
            raise TesseraError("--batch-size all requires --config", do="add --config, or list the batch sizes")
        values["batch_size"] = list(config.batch_sizes)
    instances = args.num_instances
    if instances is not None and values.setdefault("num_replicas", [instances]) != [instances]:
        raise TesseraError(
            "--num-instances and --num-replicas differ, but every replica is a process",
            got=f"{instances} and {', '.join(map(str, values['num_replicas']))}",
            do="give one of them",
        )
    if "env" in values:
        values["env"] = [parse_env_options(each) for each in values["env"]]
    AXES.check_values(values)
    return values


def make_sampling(args: argparse.Namespace, config: Config | None) -> Sampling:
    """Return the sampling: the given options, else the iterations of the config, else adaptive sampling."""
    base = (
        Sampling(target=QUICK_TARGET, budget=QUICK_BUDGET_SECONDS)
        if args.quick
        else Sampling(target=DEFAULT_TARGET, budget=DEFAULT_BUDGET_SECONDS)
    )
    given = {name: getattr(args, name) for name in ("target", "budget", "warmup", "iterations") if name in args.given}
    if config is not None and config.iterations and not args.quick and not given.keys() - {"warmup"}:
        given["iterations"] = config.iterations
    return replace(base, **given)


def _check_usable(selected: list[Case]) -> None:
    """Raise an error for an engine or a network that is not available; print warnings about the placement."""
    for name in dict.fromkeys(str(case.params["engine"]) for case in selected):
        if reason := get_engine_entry(name).find_missing():
            raise TesseraError(f"engine {name} cannot run here: {reason}")
    pairs = [(str(case.params["engine"]), str(case.params.get("device", CPU))) for case in selected]
    for engine, device in dict.fromkeys(pairs):
        check_engine_device(engine, device)
    for name in dict.fromkeys(case.name for case in selected):
        if name.startswith(TIMM_PREFIX) and find_spec("timm") is None:
            raise MissingExtra("timm", "timm")
        if name.endswith(ONNX_SUFFIX) and not Path(name).is_file():
            raise TesseraError("no such ONNX file", got=name)
    warnings = [note for case in selected for note in get_task(case).placement.check()]
    for note in dict.fromkeys(warnings):
        print(f"warning: {note}", file=sys.stderr)
