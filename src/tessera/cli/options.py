"""Options that several commands share, so that they read and behave alike everywhere."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Callable, Collection
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.launch.config import SPAWNS, LaunchConfig
from tessera.launch.job import current_job
from tessera.measure.allocator import ALLOCATORS, DEFAULT
from tessera.measure.samples import Sampling
from tessera.suites.suite import parse_duration

FORMS = ("json", "csv", "markdown")


def parse_fraction(text: str) -> float:
    """A fraction from `3%` or `0.03`.

    >>> parse_fraction("3%")
    0.03
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise TesseraError("not a fraction", got=text, allowed="for example 3% or 0.03, above 0 and below 1")
    return value


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make argparse show our own error line for a value that does not parse."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except TesseraError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def interpreter(text: str) -> str:
    """A Python that answers: its path, or its name where PATH leads to it."""
    path = shutil.which(text)
    if path is None or not _is_python(path):
        raise TesseraError("not an interpreter", got=text, allowed="a path to python 3")
    return path


def _is_python(path: str) -> bool:
    ask = (path, "-c", "import sys; print('python', sys.version_info[0])")
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "python 3"


def names(text: str) -> list[str]:
    """A list written with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def number(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise TesseraError("not a number", got=text) from None


def truth(text: str) -> bool:
    """`true` or `false`, as they stand in a sweep."""
    if text not in ("true", "false"):
        raise TesseraError("not a truth value", got=text, allowed="true, false")
    return text == "true"


def size(text: str) -> tuple[int, int]:
    """Height and width from `64` or `64x128`.

    >>> size("64"), size("64x128")
    ((64, 64), (64, 128))
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise TesseraError("not a size", got=text, allowed="a number, or HEIGHTxWIDTH")
    return int(parts[0]), int(parts[-1])


def option(axis: str) -> str:
    """The option of an axis of cases.

    >>> option("image_size")
    '--image-size'
    """
    return f"--{axis.replace('_', '-')}"


def swept(item: str, axes: Collection[str], given: Collection[str], allowed: str) -> tuple[str, str]:
    """What `--sweep` was given, `image-size=256,512`, as an axis and the text of its values.

    `given` are the axes that have values already.

    >>> swept("image-size=256,512", ["image_size"], [], "OPTION=A,B")
    ('image_size', '256,512')
    """
    name, equals, text = item.partition("=")
    axis = name.strip().removeprefix("--").replace("-", "_")
    if not equals or axis not in axes:
        known = [axis.replace("_", "-") for axis in axes]
        raise TesseraError("--sweep", got=item, allowed=allowed, do=did_you_mean(name, known))
    if axis in given:
        raise TesseraError(f"{option(axis)} has a value and a sweep, or two", do="give one of them")
    if not text.strip(" ,;"):
        raise TesseraError("--sweep has no values", got=item, allowed=allowed)
    return axis, text


def add_output(parser: argparse.ArgumentParser) -> None:
    """`--json`, `--csv`, `--markdown` and `-o`."""
    group = parser.add_argument_group("output")
    forms = group.add_mutually_exclusive_group()
    for form in FORMS:
        forms.add_argument(
            f"--{form}",
            dest="form",
            action="store_const",
            const=form,
            help=f"print {form} instead of a table",
        )
    group.add_argument(
        "-o", "--output", metavar="FILE", help="write there instead of to the terminal: .json, .csv, .md"
    )
    parser.set_defaults(form="terminal")


def add_store(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    """`--store`, and for commands that write records `--run` and `--resume`."""
    group = parser.add_argument_group("results")
    group.add_argument(
        "--store",
        metavar="PATH",
        help="SQLite file of all runs (default: $TESSERA_STORE or .tessera/results.sqlite)",
    )
    if writes:
        group.add_argument(
            "--run-name", dest="run", metavar="NAME", help="name of the run (default: today's date and a number)"
        )
        group.add_argument(
            "--resume", action="store_true", help="go on with an unfinished run; finished cases are skipped"
        )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How a case is sampled, and in how many launches."""
    default = Sampling()
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--target",
        type=checked(parse_fraction),
        metavar="FRACTION",
        help=f"stop when the median is known to this (default: {default.target:.0%}%, of each launch)",
    )
    group.add_argument(
        "--budget",
        type=checked(parse_duration),
        metavar="TIME",
        help=f"or when this time is spent (default: {default.budget:g}s per case and launch)",
    )
    group.add_argument(
        "--warmup", type=int, metavar="N", help="a fixed number of warm-up calls instead of detecting the end"
    )
    group.add_argument("--iterations", type=int, metavar="N", help="a fixed number of timed calls instead of a target")
    group.add_argument(
        "--launches",
        type=int,
        metavar="N",
        help="fresh processes per case, the unit of comparisons (default: 3; quick: 1)",
    )
    group.add_argument("--quick", action="store_true", help="a first look: one launch, 10%% target, 0.2 s per case")


def add_launch(parser: argparse.ArgumentParser, *, ranks: bool = True) -> None:
    """Where the workers run; `ranks=False` where the cases themselves say how many there are and of which kind."""
    group = parser.add_argument_group("workers")
    if ranks:
        group.add_argument(
            "--launcher", choices=SPAWNS, default="processes", help="how workers are started (default: processes)"
        )
        group.add_argument(
            "--ranks",
            type=int,
            metavar="N",
            help="workers that run every case together (default: 1; inside a job, all its ranks)",
        )
    else:
        parser.set_defaults(launcher="processes", ranks=None)
    group.add_argument("--threads", type=int, default=1, metavar="N", help="threads per worker (default: 1)")
    group.add_argument("--no-pin", action="store_true", help="do not pin workers to cores")
    group.add_argument(
        "--allocator",
        choices=tuple(ALLOCATORS),
        default=DEFAULT,
        help="malloc setting of the workers; 'steady' keeps freed pages, 'system' is glibc's default (default: steady)",
    )
    group.add_argument(
        "--time-limit",
        type=checked(parse_duration),
        metavar="TIME",
        help="kill a case that takes longer (default: generous)",
    )
    group.add_argument("--tag-output", action="store_true", help="show what workers print, tagged with their rank")


def sampling_of(args: argparse.Namespace) -> Sampling:
    given = {k: v for k in ("target", "budget", "warmup", "iterations") if (v := getattr(args, k)) is not None}
    quick = {"target": 0.10, "budget": 0.2} if args.quick else {}
    return Sampling(**{**quick, **given})


def launches_of(args: argparse.Namespace) -> int:
    launches = int(args.launches if args.launches is not None else (1 if args.quick else 3))
    if launches < 1:
        raise TesseraError("launches", got=launches, allowed="1 or more")
    return launches


def launch_of(args: argparse.Namespace) -> LaunchConfig:
    job = current_job()
    return LaunchConfig(
        spawn=args.launcher,
        workers=args.ranks if args.ranks is not None else job.size if job else 1,
        threads=args.threads,
        pin=not args.no_pin,
        allocator=args.allocator,
        time_limit=args.time_limit,
        tag_output=args.tag_output,
    )


def command_line(argv: list[str]) -> str:
    """The command as it could be typed again, without this machine's paths."""
    import shlex

    return shlex.join(["tessera", *argv[1:]])
