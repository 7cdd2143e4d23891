"""Time, memory and rates of single operators, compared with the limits of the machine.

Operators come from the catalogue (`tessera list ops`), from torch's OpInfo database, or from the calls that a network
makes. Outputs and gradients are compared with a reference before anything is timed. Every case runs in several fresh
processes (--launches), because times differ more between processes than within one.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tessera.axes import Option, group_options, parse_int
from tessera.cli.execute import execute_plan, is_root, print_summary
from tessera.cli.list_command import list_calls, list_catalogue, list_opinfo, print_list
from tessera.cli.options import (
    RANK_OPTIONS,
    RESULT_OPTIONS,
    SAMPLING_OPTIONS,
    SWEEP_OPTION,
    TOTAL_OPTION,
    WORKER_OPTIONS,
    adapt_options,
    check_devices,
    check_given_options,
    get_launches,
    make_launch,
    make_sampling,
    parse_interpreter,
)
from tessera.errors import EXIT_BENCHMARK_FAILED, EXIT_OK, TesseraError, suggest_similar
from tessera.launch.job import get_current_job
from tessera.operators import backends, catalogue
from tessera.operators.case_tables import list_tables, load_table_cases
from tessera.operators.cases import (
    ALL_SIZES,
    AXES,
    METRIC_NAMES,
    SOURCE_CATALOGUE,
    SOURCE_MODEL,
    SOURCE_OPINFO,
    SOURCE_SUITE,
    SOURCE_TABLE,
    cases,
)
from tessera.operators.tables import get_axis_value, print_calls, print_fit, print_side_by_side, rank_records
from tessera.report.blocks import Table
from tessera.report.record_tables import print_records, write_records_table
from tessera.results.record import Case, Record, compute_exit_code
from tessera.results.store import Run
from tessera.suites.plan import RunPlan
from tessera.suites.suite import load_suite

SAMPLED_SOURCES = (
    SOURCE_CATALOGUE,
    SOURCE_OPINFO,
    SOURCE_MODEL,
    SOURCE_TABLE,
)  # sources with sampling options; a suite defines its own sampling
GROUP_OPERATORS, GROUP_INPUTS, GROUP_RESULTS = "operators", "backend and inputs", "results shown"


def _check_metric(name: str) -> None:
    if name not in METRIC_NAMES:
        raise TesseraError("unknown --metric", got=name, allowed=METRIC_NAMES, do=suggest_similar(name, METRIC_NAMES))


OPTIONS = (
    *group_options(
        GROUP_OPERATORS,
        Option(
            name="names",
            positional="NAME",
            several=True,
            applies_to=(SOURCE_CATALOGUE, SOURCE_OPINFO),
            help="operators by name or glob; see --list",
        ),
        Option(
            name="category",
            several=True,
            metavar="A,B",
            applies_to=(SOURCE_CATALOGUE,),
            help="operator categories; all operators of each are selected",
        ),
        Option(name="all", action="flag", applies_to=(SOURCE_CATALOGUE, SOURCE_OPINFO), help="all operators"),
        Option(name="source", choices=("catalogue", "opinfo"), default="catalogue", help="source of the operators"),
        Option(name="from_model", metavar="MODEL", help="network (or module:callable) whose calls are measured"),
        Option(
            name="batch_size",
            parse=parse_int,
            default=1,
            applies_to=(SOURCE_MODEL,),
            help="images per batch of --from-model",
        ),
        Option(
            name="image_size",
            parse=parse_int,
            default_text="the standard size of the network",
            applies_to=(SOURCE_MODEL,),
            help="height and width of the images of --from-model in pixels",
        ),
        Option(
            name="suite",
            metavar="SUITE",
            help="suite whose operator cases are measured: quick, standard, nightly or a file",
        ),
        Option(
            name="table",
            metavar="TABLE",
            help=f"table of cases: operators with shapes, attributes and dtypes; a CSV or TOML file, or one of "
            f"{', '.join(list_tables())}",
        ),
        Option(name="operators", metavar="FILE", help="Python file with more operators, in a tuple OPERATORS"),
        Option(
            name="list",
            action="flag",
            help="list of the given operators (all operators without names), without running them",
        ),
    ),
    *AXES,
    replace(SWEEP_OPTION, group=GROUP_INPUTS),
    *group_options(
        GROUP_INPUTS,
        Option(
            name="input",
            action="append",
            metavar="NAME=VALUE",
            applies_to=(SOURCE_CATALOGUE,),
            help="shape or argument, for example lhs=(1024,1024), kernel_size=3, dtype=float64; repeatable",
        ),
        Option(name="seed", parse=parse_int, default=0, applies_to=SAMPLED_SOURCES, help="seed of the random inputs"),
        Option(
            name="python",
            parse=parse_interpreter,
            metavar="PATH",
            default_text="the interpreter of this command",
            help="interpreter that runs the cases",
        ),
        Option(name="setup_backend", help="backend to install in its own interpreter; no case is run"),
    ),
    *group_options(
        GROUP_RESULTS,
        Option(
            name="metric",
            default="time",
            check=_check_metric,
            help="metric to show, to rank by and to compare backends by",
        ),
        Option(name="top", parse=parse_int, minimum=1, help="number of cases with the largest metric to show"),
        Option(
            name="fit",
            action="flag",
            applies_to=(SOURCE_CATALOGUE, SOURCE_OPINFO, SOURCE_SUITE),
            help="overhead per call and cost per byte or FLOP, fitted over the sizes",
        ),
    ),
    *adapt_options(
        SAMPLING_OPTIONS,
        **{name: {"applies_to": SAMPLED_SOURCES} for name in ("target", "budget", "warmup", "iterations", "quick")},
    ),
    TOTAL_OPTION,
    *RANK_OPTIONS,
    *WORKER_OPTIONS,
    *RESULT_OPTIONS,
)
EPILOG = """\
examples:
  tessera ops add matmul                      forward and backward, small and medium inputs
  tessera ops --category pooling --quick      a category; --all for everything
  tessera ops conv2d --size all --fit         overhead of a call, and cost per byte or FLOP
  tessera ops softmax gelu --backend torch,compile,numpy      side by side, with speed-ups
  tessera ops conv2d --device cpu,cuda:0      side by side; times by events of the device
  tessera ops add --input lhs=(1000,1) --input rhs=(1000,) --input dtype=float64
  tessera ops sort --skew sorted,constant --pass forward      unusual inputs
  tessera ops --from-model resnet50 --top 10  operators that take most of a network's time
  tessera ops --source opinfo 'linalg*'       torch's own samples, scaled up
  tessera ops --table opperf --backend torch  the shapes of another benchmark; --list shows the cases
  tessera ops --suite nightly --total 2h      everything, the time divided over the cases; --resume continues
  tessera ops add --python other-venv/bin/python      the same in another interpreter
  torchrun --nproc-per-node 2 -m tessera ops add     joins the torchrun job
"""


def run(args: argparse.Namespace) -> int:
    if args.setup_backend:
        from tessera.operators.backends.setup import setup_backend

        print(f"ready: {setup_backend(args.setup_backend)}")
        return 0
    if args.operators:
        catalogue.use_operator_file(args.operators)
    source = _get_source(args)
    values = AXES.read_values(vars(args), args.sweep)
    _check_options(args, source, values)
    if args.list:
        return print_list(_make_listing(args, source, values), args.output_format, args.output)
    plan = _make_plan(args, source, values)
    suite = f"ops {args.suite}" if args.suite else "ops"
    stored, records, outcome = execute_plan(plan, args, suite=suite)
    if is_root():
        _print_table(args, stored, records)
        print_summary(args, stored, records, outcome)
    return compute_exit_code(records) or (_check_refused_share(records) if source == SOURCE_MODEL else EXIT_OK)


def _check_refused_share(records: Sequence[Record]) -> int:
    """Return the exit code of a failure if calls that take much of a network's time were refused."""
    from tessera.operators.sources.model import MAX_REFUSED_SHARE, find_refused_calls

    large = any(refused.share > MAX_REFUSED_SHARE for refused in find_refused_calls(records))
    return EXIT_BENCHMARK_FAILED if large else EXIT_OK


def _get_source(args: argparse.Namespace) -> str:
    """Return the source of the cases: catalogue, OpInfo, a model or a suite."""
    chosen = {
        SOURCE_MODEL: args.from_model,
        SOURCE_OPINFO: args.source == "opinfo",
        SOURCE_SUITE: args.suite,
        SOURCE_TABLE: args.table,
    }
    given = [source for source, value in chosen.items() if value]
    if len(given) > 1:
        raise TesseraError("these options cannot be combined", got=" and ".join(given), do="give one of them")
    return given[0] if given else SOURCE_CATALOGUE


def _check_options(args: argparse.Namespace, source: str, values: dict[str, list[Any]]) -> None:
    """Raise an error for options that contradict each other or do not apply to the source of the cases."""
    check_given_options(args, [source])
    AXES.check_values(values)
    AXES.check_applicable(values, [source])
    from tessera.operators.scaling import MIN_SIZES

    sizes = values.get("size", AXES["size"].default_values)
    if args.fit and source != SOURCE_SUITE and len(set(sizes)) < MIN_SIZES and ALL_SIZES not in sizes:
        raise TesseraError("--fit requires three sizes or more", got=",".join(sizes), do="add --size all")
    if args.all and (args.names or args.category):
        got = " ".join([*args.names, *(f"--category {name}" for name in args.category)])
        raise TesseraError("--all cannot be combined with operator names or --category", got=got, do="omit one of them")


def _print_table(args: argparse.Namespace, stored: Run, records: Sequence[Record]) -> None:
    """Print the records as the chosen kind of table; JSON output always holds the complete records."""
    shown = rank_records(
        _select_ranked_records(args, records), args.metric, args.top, together="size" if args.fit else "backend"
    )
    if args.output_format == "json":
        print_records(stored, shown, args.output_format, args.output)
    elif args.from_model:
        print_calls(shown, records, args.metric, args.output_format, args.output)
    elif args.fit:
        print_fit(shown, args.output_format, args.output)
    elif axis := next((axis for axis in ("backend", "device") if _varies(shown, axis)), ""):
        print_side_by_side(shown, args.metric, args.output_format, args.output, axis=axis)
    else:
        write = partial(write_records_table, metric=args.metric)
        print_records(stored, shown, args.output_format, args.output, write)


def _varies(records: Sequence[Record], axis: str) -> bool:
    return len({get_axis_value(record.case, axis) for record in records}) > 1


def _select_ranked_records(args: argparse.Namespace, records: Sequence[Record]) -> Sequence[Record]:
    """Return the records that --top ranks: operator calls, without the record of the whole network."""
    if not args.from_model or args.top is None:
        return records
    from tessera.operators.sources.model import is_whole_model

    return [record for record in records if not is_whole_model(record.case)]


def _make_listing(args: argparse.Namespace, source: str, values: dict[str, list[Any]]) -> Table:
    """Return a table of the operators of the source, restricted to the given names, categories and backends."""
    if source == SOURCE_SUITE:
        raise TesseraError(
            "--list does not apply to --suite", do=f"`tessera suite {args.suite} --dry-run` lists its cases"
        )
    if source == SOURCE_TABLE:
        return Table(["case"], [[case.key] for case in _make_cases(args, source, values)])
    if source == SOURCE_MODEL:
        return list_calls(_make_calls(args, values))
    if source == SOURCE_OPINFO:
        return list_opinfo(args.names or ["*"])
    operators = catalogue.find_operators(args.names or ([] if args.category else ["*"]), args.category)
    if "backend" in values:
        known = [backends.load_expressions(name) for name in values["backend"]]
        operators = [each for each in operators if any(each.name in expressions for expressions in known)]
    return list_catalogue(operators)


def _make_plan(args: argparse.Namespace, source: str, values: dict[str, list[Any]]) -> RunPlan:
    launch = make_launch(args)
    if args.python:
        job = get_current_job()
        if launch.spawn != "processes" or job is not None:
            got = f"a {job.kind} job" if job is not None else f"--launcher {launch.spawn}"
            raise TesseraError("--python requires --launcher processes, outside of a job", got=got)
        launch = replace(launch, python=args.python)
    sampling, launches, total = make_sampling(args), get_launches(args), args.total
    if source == SOURCE_SUITE:
        suite = load_suite(args.suite)
        selected = [case for case in suite.cases if case.feature == "ops"]
        sampling, total = suite.sampling, total or suite.budget
        launches = suite.launches if args.launches is None else launches
    else:
        selected = _make_cases(args, source, values)
    if not selected:
        raise TesseraError("no operator has a case with these options", do="see `tessera ops --list`")
    if not args.python:
        _check_usable(source, selected)
    return RunPlan(
        cases=tuple(selected), sampling=sampling, launch=launch, launches=launches, budget=total
    ).divide_budget()


def _check_usable(source: str, selected: Sequence[Case]) -> None:
    """Raise one error for a backend or a device that is missing, instead of a failure of every case."""
    for name in dict.fromkeys(str(case.params["backend"]) for case in selected):
        backends.check_usable(name)
    devices = [str(case.params["device"]) for case in selected if "device" in case.params]
    check_devices(devices)
    if source == SOURCE_OPINFO:
        from tessera.operators.sources import opinfo_index

        opinfo_index.check_usable()


def _make_cases(args: argparse.Namespace, source: str, values: dict[str, list[Any]]) -> list[Case]:
    if source == SOURCE_MODEL:
        from tessera.operators.sources.model import make_whole_model_cases

        calls = _make_calls(args, values)
        return [*make_whole_model_cases(calls), *calls]
    if source == SOURCE_TABLE:
        return load_table_cases(args.table, seed=args.seed, **values)
    if not args.names and not args.all and not args.category:
        raise TesseraError("no operator is given", do="give names, --category or --all; see `tessera ops --list`")
    names = ["*"] if args.all else args.names
    if source == SOURCE_OPINFO:
        from tessera.operators.sources import opinfo

        sizes = values.get("size", AXES["size"].default_values)
        return opinfo.cases(
            names,
            size=opinfo.OPINFO_SIZES if ALL_SIZES in sizes else sizes,
            passes=values.get("pass", AXES["pass"].default_values),
            dtype=values.get("dtype", AXES["dtype"].default_values),
            seed=args.seed,
        )
    inputs = parse_inputs(args.input)
    if "dtype" in inputs:
        if "dtype" in values:
            raise TesseraError(
                "the dtype is given twice, by --input and by --dtype",
                got=f"{inputs['dtype']} and {','.join(values['dtype'])}",
            )
        values["dtype"] = [inputs.pop("dtype")]
    passes = values.pop("pass", ())
    selected = cases(names, category=args.category, passes=passes, inputs=inputs, seed=args.seed, **values)
    if "fusion" in values and not any("fusion" in case.params for case in selected):
        raise TesseraError(
            "--fusion applies only to forward passes of the category `fused` on the backend torch",
            got=",".join(values["fusion"]),
        )
    return selected


def _make_calls(args: argparse.Namespace, values: dict[str, list[Any]]) -> list[Case]:
    from tessera.operators.sources import model

    return model.cases(
        args.from_model,
        batch_size=args.batch_size,
        image_size=args.image_size,
        passes=values.get("pass", AXES["pass"].default_values),
        dtype=values.get("dtype", AXES["dtype"].default_values),
        seed=args.seed,
    )


def parse_inputs(items: Sequence[str]) -> dict[str, Any]:
    """Parse `--input` options into shapes and arguments by name.

    >>> parse_inputs(["lhs=(2,3)", "dtype=float64"])
    {'lhs': (2, 3), 'dtype': 'float64'}
    """
    inputs: dict[str, Any] = {}
    for name, value in map(_parse_input, items):
        if name in inputs:
            raise TesseraError(f"--input {name} is given twice", got=f"{inputs[name]} and {value}")
        inputs[name] = value
    return inputs


def _parse_input(item: str) -> tuple[str, Any]:
    """Parse `lhs=(1024,1024)` into a name and a value; a value that is not a Python literal stays a string."""
    name, equals, text = item.partition("=")
    if not (equals and name and text):
        raise TesseraError(
            "--input has no name or no value", got=item, allowed="NAME=VALUE, for example lhs=(1024,1024)"
        )
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text
    except TypeError:  # a literal with a list as a dict key
        value = object()
    try:
        json.dumps(value)
    except TypeError:
        raise TesseraError(
            "--input has a value of an unsupported type", got=item, allowed="numbers, words, tuples of them"
        ) from None
    return name, value
