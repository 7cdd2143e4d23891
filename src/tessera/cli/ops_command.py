"""What one operator costs: time, memory, rates, and how far from the machine's limits.

Operators come from the catalogue (`tessera list ops`), from torch's own OpInfo database, or from the calls that a
network makes. Outputs and gradients are checked against a reference before anything is timed. Every case runs in a
fresh process, several times over (--launches), because the launch is what varies most.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from tessera.cli.execute import closing_lines, execute, is_root
from tessera.cli.list_command import Listing, print_rows
from tessera.cli.ops_listing import calls_listing, catalogue_listing, opinfo_listing
from tessera.cli.ops_options import MODEL, OPINFO, SUITE, add_options, check_options, inputs_of, source_of, was_given
from tessera.cli.ops_tables import print_backends, print_calls, print_fit, ranked
from tessera.cli.options import launch_of, launches_of, sampling_of
from tessera.cli.records_table import print_records
from tessera.errors import TesseraError
from tessera.launch.job import current_job
from tessera.operators import backends, catalogue
from tessera.operators.cases import cases
from tessera.operators.operator import SIZES
from tessera.results.record import Case, Record, exit_code
from tessera.results.run import Run
from tessera.suites.plan import Plan
from tessera.suites.suite import load_suite

EPILOG = """\
examples:
  tessera ops add matmul                      forward and backward, small and medium inputs
  tessera ops --category pooling --quick      a category; --all for everything
  tessera ops conv2d --size all --fit         what a call costs at least, and per byte or FLOP
  tessera ops softmax gelu --backend torch,compile,numpy      side by side, with speed-ups
  tessera ops add --input lhs=(1000,1) --input rhs=(1000,) --input dtype=float64
  tessera ops sort --skew sorted,constant --pass forward      inputs unlike the average
  tessera ops --from-model resnet50 --top 10  where a network's time goes
  tessera ops --source opinfo 'linalg*'       torch's own samples, scaled up
  tessera ops --suite nightly --total 2h      everything, the time divided over the cases; --resume goes on
  tessera ops add --python other-venv/bin/python      the same in another interpreter
  torchrun --nproc-per-node 2 -m tessera ops add     joins the job it is started in
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    if args.setup_backend:
        from tessera.operators.backends.setup import setup_backend

        print(f"ready: {setup_backend(args.setup_backend)}")
        return 0
    if args.operators:
        catalogue.use(args.operators)
    check_options(args)
    if args.list:
        return print_rows(_listing(args), args.form, args.output)
    plan = _plan(args)
    suite = f"ops {args.suite}" if args.suite else "ops"
    stored, records, outcome = execute(plan, store_path=args.store, name=args.run, suite=suite, resume=args.resume)
    if is_root():
        _show(args, stored, records)
        if args.tells:
            print("\n".join(closing_lines(stored, outcome, records)))
    return exit_code(records)


def _show(args: argparse.Namespace, stored: Run, records: Sequence[Record]) -> None:
    """The table that was asked for; as JSON always the records."""
    shown = ranked(_ranked_among(args, records), args.metric, args.top, together="size" if args.fit else "backend")
    if args.form == "json":
        print_records(stored, shown, args.form, args.output)
    elif args.from_model:
        print_calls(shown, records, args.metric, args.form, args.output)
    elif args.fit:
        print_fit(shown, args.form, args.output)
    elif len({record.case.params.get("backend") for record in shown}) > 1:
        print_backends(shown, args.metric, args.form, args.output)
    else:
        print_records(stored, shown, args.form, args.output, metric=args.metric)


def _ranked_among(args: argparse.Namespace, records: Sequence[Record]) -> Sequence[Record]:
    """The records that --top chooses from: of a network its calls, not the whole, which has the most of everything."""
    if not args.from_model or args.top is None:
        return records
    from tessera.operators.sources.model import is_whole

    return [record for record in records if not is_whole(record.case)]


def _listing(args: argparse.Namespace) -> Listing:
    """What there is to measure, of the source, the names, the categories and the backends that were asked for."""
    source = source_of(args)
    if source == SUITE:
        raise TesseraError("--list is of operators", do=f"`tessera suite {args.suite} --dry-run` lists its cases")
    if source == MODEL:
        return calls_listing(_calls(args))
    if source == OPINFO:
        return opinfo_listing(args.names or ["*"])
    found = catalogue.find(args.names or ([] if args.category else ["*"]), args.category)
    if was_given(args, "backend"):
        found = [one for one in found if any(one.name in backends.expressions(name) for name in args.backend)]
    return catalogue_listing(found)


def _plan(args: argparse.Namespace) -> Plan:
    launch = launch_of(args)
    if args.python:
        job = current_job()
        if launch.spawn != "processes" or job is not None:
            got = f"a {job.kind} job" if job is not None else f"--launcher {launch.spawn}"
            raise TesseraError("--python needs processes of its own", got=got, allowed="--launcher processes")
        launch = replace(launch, python=args.python)
    sampling, launches, total = sampling_of(args), launches_of(args), args.total
    if args.suite:
        suite = load_suite(args.suite)
        found = [case for case in suite.cases if case.feature == "ops"]
        sampling, total = suite.sampling, total or suite.budget
        launches = suite.launches if args.launches is None else launches
    else:
        found = _cases(args)
    if not found:
        raise TesseraError("nothing to measure: no operator has such a case", do="see `tessera ops --list`")
    if not args.python:
        _check_usable(args, found)
    return Plan(cases=tuple(found), sampling=sampling, launch=launch, launches=launches, budget=total).divided()


def _check_usable(args: argparse.Namespace, found: Sequence[Case]) -> None:
    """Refuse what is not installed here, once rather than case by case."""
    for name in dict.fromkeys(str(case.params["backend"]) for case in found):
        backends.check_usable(name)
    if args.source == "opinfo":
        from tessera.operators.sources import opinfo_index

        opinfo_index.check_usable()


def _cases(args: argparse.Namespace) -> list[Case]:
    if args.from_model:
        from tessera.operators.sources.model import whole

        calls = _calls(args)
        return [*whole(calls), *calls]
    if not args.names and not args.all and not args.category:
        raise TesseraError("no operator named", do="name some, or --category, or --all; see `tessera ops --list`")
    wanted = ["*"] if args.all else args.names
    if args.source == "opinfo":
        from tessera.operators.sources import opinfo

        size = opinfo.SIZES if "all" in args.size else args.size
        return opinfo.cases(wanted, size=size, passes=args.passes, dtype=args.dtype, seed=args.seed)
    inputs, dtype = inputs_of(args)
    found = cases(
        wanted,
        category=args.category,
        backend=args.backend,
        size=SIZES if "all" in args.size else args.size,
        passes=args.passes,
        dtype=dtype,
        skew=args.skew or ("",),
        cache=args.cache,
        fusion=args.fusion,
        inputs=inputs,
        seed=args.seed,
    )
    if args.fusion and was_given(args, "fusion") and not any("fusion" in case.params for case in found):
        raise TesseraError("--fusion is of the category `fused`, forward, on torch alone", got=",".join(args.fusion))
    return found


def _calls(args: argparse.Namespace) -> list[Case]:
    from tessera.operators.sources import model

    return model.cases(
        args.from_model,
        batch_size=args.batch_size,
        image_size=args.image_size,
        passes=args.passes,
        dtype=args.dtype,
        seed=args.seed,
    )
