"""The options of `tessera phases`: what is run, how it is streamed, and what becomes of the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tessera.cli.options import add_launch, add_output, checked, names, option
from tessera.errors import TesseraError
from tessera.measure.samples import Sampling
from tessera.phased.cases import AXES, CHAIN, USUAL
from tessera.phased.choices import DTYPES, HOLD_ALL, SCHEDULES, STORES, WORKERS

ITERS, WARMUP = 5, 1
QUICK_ITERS = 2
ALL = "all"
STREAM = ("schedule", "devices", "store", "budget", "activations", "workers")


def numbers(text: str) -> list[int]:
    """Numbers written with commas."""
    try:
        found = [int(word) for word in names(text)]
    except ValueError:
        raise TesseraError("not a number", got=text, allowed="for example 32, or 8,32,128") from None
    if not found:
        raise TesseraError("no number", got=text, allowed="for example 32, or 8,32,128")
    return found


def words(text: str) -> list[str]:
    """Words written with commas."""
    found = names(text)
    if not found:
        raise TesseraError("no value", got=text)
    return found


# axis: how its option is read, what stands for a value in the help, and what it says
OPTIONS: dict[str, tuple[Callable[[str], list[Any]], str, str]] = {
    "batch_size": (numbers, "N", "matrices or images of a mini-batch"),
    "dsize": (numbers, "N", "of the chain: rows and columns of its square matrices"),
    "num_layers": (numbers, "N", "of the chain: its layers, each a matrix product"),
    "image_size": (numbers, "N", "of a model: height and width of its images (default: what it was made for)"),
    "batches_per_step": (numbers, "N", "mini-batches of an iteration; all pass through a phase while it is loaded"),
    "dtype": (words, "WORD", f"of {', '.join(DTYPES)}; 16 bits are stored and streamed, and computed as float32"),
    "schedule": (words, "WORD", f"of {', '.join(SCHEDULES)}; or {ALL}"),
    "devices": (numbers, "N", "that take turns or share the work (default: 2, of schedules with one device 1)"),
    "store": (words, "WORD", f"where weights are kept: of {', '.join(STORES)}"),
    "budget": (words, "SIZE", "working memory for weights, e.g. 256MB (default: a quarter of them, 2 layers at least)"),
    "activations": (
        words,
        "SIZE",
        "those between phases that stay in memory, e.g. 64MB; more go to disk (default: all)",
    ),
    "workers": (words, "WORD", f"what devices are: of {', '.join(WORKERS)}"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every option; those of the network and of the stream take several values, written with commas."""
    what = parser.add_argument_group("the network")
    what.add_argument(
        "--model", type=checked(words), metavar="NAME", help="a model, or module:callable, in place of the chain"
    )
    what.add_argument("--weights", metavar="FILE", help="of a model: its safetensors file (default: random weights)")
    how = parser.add_argument_group("how it is streamed")
    for axis, (read, value, text) in OPTIONS.items():
        group = how if axis in STREAM else what
        group.add_argument(option(axis), type=checked(read), metavar=value, help=text + _default(axis, text))
    how.add_argument("--sharded-execution", action="store_true", help="the same as --schedule sharded")
    how.add_argument("--cold", action="store_true", help="past the page cache: every pass reads the disk itself")
    shown = parser.add_argument_group("what to show")
    shown.add_argument("--advise", action="store_true", help="what bounds the phases, and what would balance them")
    shown.add_argument("--profile", action="store_true", help="one iteration; write its timeline, a trace and JSON")
    shown.add_argument("--profile-dir", metavar="DIR", help="where to make the folder for them (default: ./)")
    shown.add_argument("--list", action="store_true", help="list the cases that this would run, and end")
    _add_sampling(parser)
    add_launch(parser, ranks=False)
    _add_results(parser)
    add_output(parser)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--iters", type=int, metavar="N", help=f"iterations that are timed (default: {ITERS})")
    group.add_argument("--warmup", type=int, default=WARMUP, metavar="N", help=f"iterations before (default: {WARMUP})")
    group.add_argument("--launches", type=int, default=1, metavar="N", help="fresh processes per case (default: 1)")
    group.add_argument("--quick", action="store_true", help=f"{QUICK_ITERS} iterations instead of {ITERS}")


def _add_results(parser: argparse.ArgumentParser) -> None:
    """Like those of every command; only that --store is the one of the weights here."""
    group = parser.add_argument_group("results")
    group.add_argument(
        "--results",
        metavar="PATH",
        help="SQLite file of all runs (default: $TESSERA_STORE or .tessera/results.sqlite)",
    )
    group.add_argument(
        "--run-name", dest="run", metavar="NAME", help="name of the run (default: today's date and a number)"
    )
    group.add_argument("--resume", action="store_true", help="go on with an unfinished run; finished cases are skipped")


def _default(axis: str, text: str) -> str:
    if "default" in text:
        return ""
    if axis in USUAL[True]:
        chain, model = USUAL[True][axis], USUAL[False][axis]
        return f" (default: {chain}; of a model {model})"
    return f" (default: {','.join(map(str, AXES[axis]))})" if AXES[axis] else ""


def axes_of(args: argparse.Namespace) -> tuple[list[str], dict[str, list[Any]], list[str]]:
    """The networks and the axes of the cases asked for, and what has to be said about options without effect."""
    axes: dict[str, list[Any]] = {axis: given for axis in OPTIONS if (given := getattr(args, axis)) is not None}
    if args.sharded_execution:
        if axes.setdefault("schedule", ["sharded"]) != ["sharded"]:
            raise TesseraError("--sharded-execution and --schedule say two things", got=",".join(axes["schedule"]))
    elif axes.get("schedule") == [ALL]:
        axes["schedule"] = list(SCHEDULES)
    if args.cold:
        axes["cold"] = [True]
    if args.weights is not None:
        axes["weights"] = [args.weights]
    if args.threads != 1:
        axes["threads"] = [args.threads]
    if args.advise and set(axes.get("schedule", AXES["schedule"])) <= set(HOLD_ALL):
        raise TesseraError(
            "--advise is about streams, and nothing is streamed here",
            got=",".join(axes["schedule"]),
            allowed=[name for name in SCHEDULES if name not in HOLD_ALL],
        )
    return args.model or [CHAIN], axes, _notes(args)


def _notes(args: argparse.Namespace) -> list[str]:
    notes = []
    if args.profile_dir is not None and not args.profile:
        notes.append("--profile-dir has no effect without --profile")
    if args.profile and args.iters not in (None, 1):
        notes.append("--profile runs one iteration, whatever --iters says")
    if args.advise and args.form in ("json", "csv"):
        notes.append(f"--advise has no effect on --{args.form}: the records hold what it is reckoned from")
    return notes


def sampling_of(args: argparse.Namespace) -> Sampling:
    """So many iterations after a warm-up; a profile is of one."""
    usual = QUICK_ITERS if args.quick else ITERS
    given = usual if args.iters is None else args.iters
    return Sampling(warmup=args.warmup, iterations=1 if args.profile else given)
