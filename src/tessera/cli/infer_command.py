"""Images per second of a whole network: which engine, how many replicas, which batch.

A network runs in one of several engines, on replicas that are pinned processes, start every window together and are
summed over the time in which all of them work. Before it is timed, an engine has to give the answers of torch.
`--tune` finds the best engine, replicas, threads and batch; `--by-operator` tells where the time goes.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from tessera.cli.execute import closing_lines, execute
from tessera.cli.infer_options import (
    TOP,
    add_engine,
    add_network,
    add_replicas,
    add_windows,
    axes_of,
    check_use,
    config_of,
    sampling_of,
)
from tessera.cli.infer_tables import print_cases, print_choices, print_inference
from tessera.cli.options import launch_of
from tessera.errors import REGRESSION, MissingExtra, TesseraError
from tessera.inference.cases import cases, task_of
from tessera.inference.engines import available
from tessera.inference.settings import ONNX, TIMM
from tessera.launch.job import current_job
from tessera.results.record import Case, exit_code
from tessera.suites.plan import Plan

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
PREPARATION = 60.0  # seconds at most, but for the largest networks: export, compilation, the check against torch


def configure(parser: argparse.ArgumentParser) -> None:
    add_network(parser)
    add_engine(parser)
    add_replicas(parser)
    add_windows(parser)


def run(args: argparse.Namespace) -> int:
    config = config_of(args)
    if args.list and config is None and args.model is None:
        return print_choices(args.form, args.output)
    job = current_job()
    if job is not None:
        raise TesseraError(
            f"replicas are started by Tessera, not by {job.kind}", do="start it outside of the job, with --num-replicas"
        )
    check_use(args)
    args.no_pin = args.no_pin or args.numa_aware is False
    axes = axes_of(args, config)
    if args.tune:
        from tessera.cli.infer_tune import run_tuning

        return run_tuning(args, config, axes)
    found = cases([args.config] if args.config else [], **axes)
    if args.list:
        return print_cases(found, args.form, args.output)
    _check(found)
    plan = Plan(
        cases=tuple(found),
        sampling=sampling_of(args, config),
        launch=launch_of(args),
        launches=args.launches or 1,
        preparation=PREPARATION,
    )
    stored, records, outcome = execute(plan, store_path=args.store, name=args.run, suite="infer", resume=args.resume)
    print_inference(stored, records, args.form, args.output, top=args.top or TOP)
    if args.tells:
        print("\n".join(closing_lines(stored, outcome, records)))
    asked_for = [record for record in records if record.case.params.get("target_rate") and "held" in record.metrics]
    if any(not record.metrics["held"].value for record in asked_for):
        return REGRESSION
    return exit_code(records)


def _check(found: list[Case]) -> None:
    """Refuse before anything starts what would be refused in every case; what is forced is said."""
    for name in dict.fromkeys(str(case.params["engine"]) for case in found):
        if (why := available(name)) is not None:
            raise TesseraError(f"engine {name} cannot run here: {why}")
    for name in dict.fromkeys(case.name for case in found):
        if name.startswith(TIMM) and find_spec("timm") is None:
            raise MissingExtra("timm", "timm")
        if name.endswith(ONNX) and not Path(name).is_file():
            raise TesseraError("no such ONNX file", got=name)
    warnings = [note for case in found for note in task_of(case).placement.check()]
    for note in dict.fromkeys(warnings):
        print(f"warning: {note}", file=sys.stderr)
