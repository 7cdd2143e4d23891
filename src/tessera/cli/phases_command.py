"""Cost of streaming the weights of a network through a small working memory, and its overlap with compute.

The weights stay on disk or in host memory and are loaded into working memory phase by phase. While one phase is
computed the next one is loaded, so that a phase takes the longer of both times instead of their sum. Without --model
the network is a chain of matrix products, whose batch and matrix size set the computation per loaded byte.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from tessera.axes import Option, group_options
from tessera.cli.execute import execute_and_print, is_root, make_plan, print_cases
from tessera.cli.options import (
    LIST_CASES_OPTION,
    OUTPUT_OPTIONS,
    RUN_OPTIONS,
    SAMPLING_OPTIONS,
    STORE_OPTIONS,
    SWEEP_OPTION,
    WORKER_OPTIONS,
    adapt_options,
    make_fixed_sampling,
    make_removed_option,
    make_renamed_option,
    omit_options,
)
from tessera.cli.progress import StatusLine
from tessera.errors import TesseraError
from tessera.measure.samples import Sampling
from tessera.phased.cases import AXES, CHAIN, GROUP_NETWORK, SHARDED_EXECUTION, cases, check_streaming_options
from tessera.phased.choices import STORES, parse_bytes
from tessera.phased.profile.directory import prepare_directory, write_profile
from tessera.phased.profile.pass_profile import get_profile
from tessera.phased.tables import write_phases
from tessera.report.figures import format_bytes
from tessera.results.record import Record, compute_exit_code
from tessera.suites.suite import parse_duration

DEFAULT_ITERATIONS, QUICK_ITERATIONS, DEFAULT_WARMUP = 5, 2, 1
GROUP_ADVICE = "advice and profile"


def parse_sampling_time(text: str) -> float:
    """Parse a sampling time; a size in bytes raises an error that names --weight-budget."""
    try:
        return parse_duration(text)
    except TesseraError:
        parse_bytes(text)
        raise TesseraError(
            "--budget is the sampling time, not a size in bytes",
            got=text,
            do="set the working memory for weights with --weight-budget",
        ) from None


def check_store_path(path: str) -> None:
    """Raise an error if the value of --store is a storage of weights, which belongs to --weight-store."""
    if path in STORES:
        raise TesseraError(
            "--store is the path of the results file", got=path, do="set the storage of weights with --weight-store"
        )


OPTIONS = (
    Option(
        name="model",
        several=True,
        metavar="NAME",
        group=GROUP_NETWORK,
        help="model, folder of a Hugging Face checkpoint, or module:callable (returns a model, or a model and its "
        "inputs), in place of the chain",
        default_text="the chain",
    ),
    *AXES,
    Option(
        name="rewrite",
        metavar="CHECKPOINT",
        group=GROUP_NETWORK,
        help="checkpoint to write to the file of -o in an order and alignment for streaming; nothing is measured",
    ),
    SHARDED_EXECUTION,
    SWEEP_OPTION,
    LIST_CASES_OPTION,
    *group_options(
        GROUP_ADVICE,
        Option(name="advise", action="flag", help="bottleneck of the phases, and settings that would balance them"),
        Option(name="profile", action="flag", help="one iteration, written as a timeline, a trace and JSON"),
        Option(name="profile_dir", metavar="DIR", help="directory of --profile", default_text="./"),
    ),
    *adapt_options(
        SAMPLING_OPTIONS,
        target={"default_text": "none"},
        budget={"parse": parse_sampling_time, "default_text": "none"},
        warmup={"default_text": str(DEFAULT_WARMUP)},
        iterations={"default_text": f"{DEFAULT_ITERATIONS}; with --quick {QUICK_ITERATIONS}"},
        quick={"help": f"quick, less precise run: 1 launch, {QUICK_ITERATIONS} iterations"},
    ),
    *omit_options(WORKER_OPTIONS, "threads"),
    *adapt_options(STORE_OPTIONS, store={"check": check_store_path}),
    make_renamed_option("--results", "--store"),
    make_removed_option("--workers", "leave it out: devices are threads"),
    make_removed_option("--activations", "lower --batches-per-step or --batch-size"),
    *RUN_OPTIONS,
    *OUTPUT_OPTIONS,
)
OUTPUT_SUFFIXES = (".safetensors", ".pt")
EPILOG = """\
examples:
  tessera phases                                         three layers of 250 x 250 in float16, phased over two devices
  tessera phases --schedule all --quick                  every schedule side by side
  tessera phases --dsize 2048 --batch-size 1 --batches-per-step 1 --dtype float32 --cold --advise
  tessera phases --sharded-execution                     split over two devices, no weights streamed
  tessera phases --model resnet50 --weight-budget 32MB --schedule overlapped,sequential,resident
  tessera phases --model resnet50 --weights mine.safetensors --profile --profile-dir out
  tessera phases --model folder --schedule overlapped    Hugging Face checkpoint, with inputs of its configuration
  tessera phases --rewrite folder -o streamed.safetensors --dtype int8
  tessera phases --batch-size 1,4,16,64 --advise         balance of I/O and compute

An iteration is a step: --batches-per-step mini-batches, which all pass through each phase while its weights are loaded.
"""


def run(args: argparse.Namespace) -> int:
    if args.rewrite is not None:
        return _rewrite(args)
    values = AXES.read_values(vars(args), args.sweep)
    selected = cases(args.model or [CHAIN], **values)
    if args.advise:
        check_streaming_options(["advise"], list(dict.fromkeys(str(case.params["schedule"]) for case in selected)))
    if is_root():
        for note in _make_notes(args):
            print(f"note: {note}", file=sys.stderr)
    if args.list:
        return print_cases(selected, args)
    if args.weights is not None and not Path(args.weights).is_file():
        raise TesseraError("the weights file does not exist", got=args.weights)
    plan = make_plan(args, selected, sampling=_make_sampling(args))
    if args.profile and args.launches is None:
        plan = replace(plan, launches=1)
    writes = args.profile and is_root()
    with prepare_directory(Path(args.profile_dir or ".")) if writes else nullcontext() as folder:
        write = partial(write_phases, advise=args.advise, profile=args.profile)
        records = execute_and_print(plan, args, suite="phases", write=write)
        if folder is not None:
            write_profile_pages(records, folder, quiet=not args.show_summary)
    return compute_exit_code(records)


def _rewrite(args: argparse.Namespace) -> int:
    """Rewrite a checkpoint for streaming."""
    from tessera.models import build_layers
    from tessera.phased.bench.workload import build_model_inputs
    from tessera.phased.rewriting import rewrite_checkpoint

    if args.output is None:
        raise TesseraError("--rewrite requires -o FILE, the file to write")
    for name, values in (("--model", args.model), ("--dtype", args.dtype)):
        if values and len(values) > 1:
            raise TesseraError(f"--rewrite takes one {name}", got=",".join(values))
    source = Path(args.rewrite)
    if not source.exists():
        raise TesseraError("the checkpoint does not exist", got=args.rewrite)
    model = inputs = None
    if args.model:
        [name] = args.model
        model, inputs = partial(build_layers, name), build_model_inputs(name)
    dtype = None if not args.dtype else args.dtype[0]
    with StatusLine() as show:
        show(f"rewriting {source}")
        written = rewrite_checkpoint(source, Path(args.output), model=model, inputs=inputs, dtype=dtype)
    print(f"{args.output}: {format_bytes(written.nbytes)} of weights, in the order of {written.order}", file=sys.stderr)
    return 0


def _make_notes(args: argparse.Namespace) -> list[str]:
    """Return a note for every option that has no effect."""
    notes = []
    if args.profile_dir is not None and not args.profile:
        notes.append("--profile-dir has no effect without --profile")
    if args.profile and args.iterations not in (None, 1):
        notes.append("--profile runs one iteration, regardless of --iterations")
    if args.advise and args.output_format in ("json", "csv"):
        notes.append(
            f"--advise has no effect on --{args.output_format}: the records hold the figures that it is computed from"
        )
    return notes


def _make_sampling(args: argparse.Namespace) -> Sampling:
    """Return a sampling with a fixed number of iterations, or adaptive sampling if --target or --budget is given."""
    sampling = make_fixed_sampling(
        args, warmup=DEFAULT_WARMUP, iterations=QUICK_ITERATIONS if args.quick else DEFAULT_ITERATIONS
    )
    return replace(sampling, iterations=1) if args.profile else sampling


def write_profile_pages(records: list[Record], folder: Path, *, quiet: bool) -> None:
    """Write the profile pages of the cases to a folder; print a note for every case without a profile."""
    profiles = {record.case.key: profile for record in records if (profile := get_profile(record)) is not None}
    for record in records:
        if record.case.key not in profiles:
            print(f"note: no profile of {record.case.key}: {record.status.replace('_', ' ')}", file=sys.stderr)
    if not profiles:
        if any(folder.iterdir()):
            print(f"note: {folder} is unchanged: it holds files of another run", file=sys.stderr)
        return
    written = write_profile(profiles, folder)
    print("profile: " + ", ".join(map(str, written)), file=sys.stderr if quiet else sys.stdout)
