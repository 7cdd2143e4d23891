"""What it costs to stream the weights of a network through a small working memory, and how much of that is hidden.

The weights stay on disk or in host memory and come into working memory phase by phase. While one phase is computed
the next one is loaded, so that a phase takes the longer of both instead of their sum. Without --model the network is
a chain of matrix products, whose batch and matrix size decide how much is computed for each byte that is loaded.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from tessera.cli.execute import closing_lines, execute, is_root
from tessera.cli.options import launch_of
from tessera.cli.phases_options import add_options, axes_of, sampling_of
from tessera.cli.phases_tables import print_phases
from tessera.errors import TesseraError
from tessera.phased.cases import cases
from tessera.phased.profile.directory import prepared, profile_of, write_profile
from tessera.report.destination import destination
from tessera.report.tables import Column, render
from tessera.results.record import Record, exit_code
from tessera.suites.plan import Plan

EPILOG = """\
examples:
  tessera phases                                         three layers of 250 x 250 in float16, phased over two devices
  tessera phases --schedule all --quick                  every schedule side by side
  tessera phases --dsize 2048 --batch-size 1 --batches-per-step 1 --dtype float32 --cold --advise
  tessera phases --sharded-execution                     divided over two devices, nothing streamed
  tessera phases --model resnet50 --budget 32MB --schedule overlapped,sequential,resident
  tessera phases --model resnet50 --weights mine.safetensors --profile --profile-dir out
  tessera phases --batch-size 1,4,16,64 --advise         where I/O and compute balance

An iteration is a step: --batches-per-step mini-batches, all of them through each phase while its weights are there.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    networks, axes, notes = axes_of(args)
    found = cases(networks, **axes)
    if is_root():
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    if args.list:
        with destination(args.output) as stream:
            render([Column("case")], [[case.key] for case in found], args.form, stream)
        return 0
    if args.launches < 1:
        raise TesseraError("--launches", got=args.launches, allowed="1 or more")
    if args.weights is not None and not Path(args.weights).is_file():
        raise TesseraError("no such file of weights", got=args.weights)
    plan = Plan(cases=tuple(found), sampling=sampling_of(args), launch=launch_of(args), launches=args.launches)
    writes = args.profile and is_root()
    with prepared(Path(args.profile_dir or ".")) if writes else nullcontext() as folder:
        stored, records, outcome = execute(
            plan, store_path=args.results, name=args.run, suite="phases", resume=args.resume
        )
        if is_root():
            print_phases(stored, records, args.form, args.output, advise=args.advise, profile=args.profile)
            if args.tells:
                print("\n".join(closing_lines(stored, outcome, records)))
        if folder is not None:
            write_pages(records, folder, quiet=not args.tells)
    return exit_code(records)


def write_pages(records: list[Record], folder: Path, *, quiet: bool) -> None:
    """Write the profiles of the cases that have one, and say which have none."""
    profiles = {record.case.key: profile for record in records if (profile := profile_of(record)) is not None}
    for record in records:
        if record.case.key not in profiles:
            print(f"note: no profile of {record.case.key}: {record.status.replace('_', ' ')}", file=sys.stderr)
    if not profiles:
        if any(folder.iterdir()):
            print(f"note: {folder} is left as it was: what is in it is of another run", file=sys.stderr)
        return
    written = write_profile(profiles, folder)
    print("profile: " + ", ".join(map(str, written)), file=sys.stderr if quiet else sys.stdout)
