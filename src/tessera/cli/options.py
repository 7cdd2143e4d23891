"""Command-line options from their declarations, and the options that several commands share."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tessera.axes import Axis, Option, check_applicable, group_options, parse_fraction, parse_int
from tessera.device import CPU
from tessera.errors import TesseraError
from tessera.launch.config import SPAWN_METHODS, LaunchConfig
from tessera.launch.fresh import FreshProcess
from tessera.launch.job import get_current_job
from tessera.measure.allocator import ALLOCATORS, DEFAULT_ALLOCATOR
from tessera.measure.samples import Sampling
from tessera.suites.suite import parse_duration

OUTPUT_FORMAT_NAMES = {"json": "JSON", "csv": "CSV", "markdown": "Markdown"}
PICTURE_SUFFIXES = (".svg", ".html")
DEFAULT_LAUNCHES = 3
QUICK_SAMPLING: Mapping[str, float] = {"target": 0.10, "budget": 0.2}


def parse_interpreter(text: str) -> str:
    """Return the path of a Python 3 interpreter, given as a path or as a name in PATH."""
    path = shutil.which(text)
    if path is None or not _is_python(path):
        raise TesseraError("not a Python 3 interpreter", got=text, allowed="a path, or a name in PATH")
    return path


def _is_python(path: str) -> bool:
    command = (path, "-c", "import sys; print('python', sys.version_info[0])")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "python 3"


# Options that several commands share. A command may replace the default or the help of an option with `adapt_options`.
SAMPLING_OPTIONS = group_options(
    "sampling",
    Option(
        name="target",
        parse=parse_fraction,
        metavar="FRACTION",
        help="relative half-width of the median's confidence interval at which sampling stops",
        default_text="3%",
    ),
    Option(
        name="budget",
        parse=parse_duration,
        metavar="TIME",
        help="sampling time per case and launch, for example 5s",
        default_text="1s",
    ),
    Option(name="warmup", parse=parse_int, minimum=0, help="number of warm-up calls", default_text="adaptive"),
    Option(
        name="iterations",
        aliases=("--iters",),
        parse=parse_int,
        minimum=1,
        help="number of timed calls, in place of --target and --budget",
        default_text="none",
    ),
    Option(
        name="launches",
        parse=parse_int,
        minimum=1,
        help="number of fresh processes per case, the sampling unit of comparisons",
        default_text=f"{DEFAULT_LAUNCHES}; with --quick 1",
    ),
    Option(name="quick", action="flag", help="quick, less precise run: 1 launch, target 10%, budget 0.2s per case"),
)
RANK_OPTIONS = group_options(
    "workers",
    Option(name="launcher", choices=SPAWN_METHODS, default="processes", help="method of starting the workers"),
    Option(
        name="ranks",
        parse=parse_int,
        help="number of workers that run each case together",
        default_text="1; inside a job, all its ranks",
    ),
)
WORKER_OPTIONS = group_options(
    "workers",
    Option(name="threads", parse=parse_int, default=1, help="threads per worker"),
    Option(name="no_pin", action="flag", help="no pinning of workers to cores"),
    Option(
        name="allocator",
        choices=tuple(ALLOCATORS),
        default=DEFAULT_ALLOCATOR,
        help="malloc setting of the workers (steady keeps freed pages, system is glibc's default)",
    ),
    Option(
        name="time_limit",
        parse=parse_duration,
        metavar="TIME",
        help="time after which a case is killed",
        default_text="far above the expected time",
    ),
    Option(name="tag_output", action="flag", help="output of the workers, each line with its rank"),
)
STORE_OPTIONS = (
    Option(
        name="store",
        metavar="PATH|URL",
        group="results",
        help="SQLite file of all runs, or postgresql://USER@HOST/DATABASE",
        default_text="$TESSERA_STORE or .tessera/results.sqlite",
    ),
)
RUN_OPTIONS = group_options(
    "results",
    Option(name="run", option="--run-name", help="name of the run", default_text="date and number"),
    Option(name="resume", action="flag", help="continue an unfinished run; skip finished cases"),
)
OUTPUT_FILE_OPTION = Option(
    name="output",
    option="-o",
    aliases=("--output",),
    metavar="FILE",
    group="output",
    help="output file instead of the terminal; .json, .csv and .md select the format",
)
OUTPUT_OPTIONS = (
    *(
        Option(
            name="output_format",
            option=f"--{form}",
            action="const",
            const=form,
            default="terminal",
            exclusive="output_format",
            group="output",
            help=f"{OUTPUT_FORMAT_NAMES[form]} instead of a table",
        )
        for form in OUTPUT_FORMAT_NAMES
    ),
    OUTPUT_FILE_OPTION,
)
RESULT_OPTIONS = (*STORE_OPTIONS, *RUN_OPTIONS, *OUTPUT_OPTIONS)
TOTAL_OPTION = Option(
    name="total",
    parse=parse_duration,
    metavar="TIME",
    group="sampling",
    help="time for the whole run, divided among the cases",
)
THRESHOLD_OPTION = Option(
    name="threshold",
    parse=parse_fraction,
    metavar="FRACTION",
    default=0.03,
    default_text="3%",
    help="smallest relevant change, for example 5% or 0.05",
)
SELECTION_OPTIONS = (
    Option(name="feature", metavar="F", help="only cases of this feature, for example ops", default_text="all"),
    Option(name="name", metavar="GLOB", help="only cases whose name matches, for example 'conv*'", default_text="all"),
)
LIST_CASES_OPTION = Option(name="list", action="flag", group="cases", help="list of the cases, without running them")
ALL_OPTION = Option(
    name="all", action="flag", group="output", help="every figure of every case, instead of findings and compact tables"
)
ALLOW_CODE_OPTION = Option(
    name="allow_code",
    action="flag",
    help="suite files that name Python code (module:callable, FILE.py), which is run",
)
LIST_RUNS_OPTION = Option(name="list", action="flag", help="list of the runs in the store")
SWEEP_OPTION = Option(
    name="sweep",
    action="append",
    metavar="OPTION=A,B",
    group="cases",
    help="several values of a case option, for example image-size=256,512; repeat it for all combinations; "
    "separate values that contain commas with semicolons",
)
SHARED_OPTIONS = (*SAMPLING_OPTIONS, *RANK_OPTIONS, *WORKER_OPTIONS, *RESULT_OPTIONS)


def make_renamed_option(old: str, new: str) -> Option:
    """Declare the hidden old name of a renamed option; its use raises an error that gives the new name."""

    def raise_error(value: object) -> None:
        raise TesseraError(f"{old} was renamed to {new}")

    return Option(name=f"moved_{old.strip('-')}", option=old, hidden=True, check=raise_error)


def make_removed_option(old: str, do: str) -> Option:
    """Declare the hidden name of a removed option; its use raises an error that says what to do instead."""

    def raise_error(value: object) -> None:
        raise TesseraError(f"{old} was removed", got=value, do=do)

    return Option(name=f"removed_{old.strip('-')}", option=old, hidden=True, check=raise_error)


def add_options(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add declared options to a parser, under the headings of their groups."""
    declared = tuple(options)
    groups: dict[tuple[str, str], Any] = {}
    for option in declared:
        target: Any = parser
        if option.group:
            if (option.group, "") not in groups:
                groups[option.group, ""] = parser.add_argument_group(option.group)
            target = groups[option.group, ""]
        if option.exclusive:
            if (option.group, option.exclusive) not in groups:
                groups[option.group, option.exclusive] = target.add_mutually_exclusive_group()
            target = groups[option.group, option.exclusive]
        _add_option(target, option)
    parser.set_defaults(declared=(*(parser.get_default("declared") or ()), *declared))


def configure_parser(parser: argparse.ArgumentParser, command: ModuleType) -> None:
    """Add the options of a command's module to its parser: `configure` of the module, or its `OPTIONS`."""
    if hasattr(command, "configure"):
        command.configure(parser)
    else:
        add_options(parser, command.OPTIONS)


def join_description(description: str, epilog: str) -> str:
    """Return the text at the start of a help page: the first line, the examples, then the rest of the description."""
    first, _, rest = description.strip().partition("\n")
    return "\n\n".join(filter(None, [first, epilog.strip(), rest.strip()]))


def shorten_usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage line of a parser: its positional arguments, and `[options]` in place of the options."""
    names = [str(action.metavar or action.dest) for action in parser._actions if not action.option_strings]
    return " ".join([parser.prog, *(f"[{name}]" for name in names), "[options]"])


def _add_option(target: Any, option: Option) -> None:
    help_line = argparse.SUPPRESS if option.hidden else option.help_line.replace("%", "%%")
    if option.positional:
        target.add_argument(
            option.name, nargs="*" if option.several else "?", metavar=option.positional, help=help_line
        )
        return
    flags = (option.flag, *option.aliases)
    more: dict[str, Any] = {"dest": option.dest, "default": None, "help": help_line}
    if option.action == "flag":
        more |= {"action": "store_const", "const": True}
    elif option.action == "const":
        more |= {"action": "store_const", "const": option.const}
    elif option.action == "on_off":
        more |= {"action": argparse.BooleanOptionalAction}
    else:
        more |= {"type": convert_parse_errors(option.parse_values if option.several else option.parse_one)}
        more |= {"metavar": option.value_name, "action": option.action}
    target.add_argument(*flags, **more)


def convert_parse_errors(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a parse function so that argparse prints the message of its `TesseraError`."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except TesseraError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def finish_arguments(args: argparse.Namespace) -> None:
    """Check the values of declared options and fill in defaults; `args.given` names the options that were given.

    Axes that were not given stay None, because their defaults depend on the benchmark.
    """
    declared: tuple[Option, ...] = getattr(args, "declared", ())
    args.given = {option.dest for option in declared if getattr(args, option.dest) not in (None, [])}
    for option in declared:
        value = getattr(args, option.dest)
        if isinstance(option, Axis):
            continue
        if option.dest in args.given:
            for item in value if option.several or option.action == "append" else [value]:
                option.check_value(item)
        else:
            setattr(args, option.dest, _get_default_value(option))


def check_given_options(args: argparse.Namespace, selected: Sequence[str]) -> None:
    """Raise an error for a given option that applies to none of the selected benchmarks, modes or sources."""
    check_applicable([option for option in args.declared if option.dest in args.given], selected)


def check_devices(names: Iterable[str]) -> None:
    """Raise an error that lists the existing devices if one of `names` does not exist."""
    if wanted := [name for name in names if name != CPU]:
        with FreshProcess() as process:  # asking the driver must not initialise a device here: workers are forked
            process.call("tessera.device:check_available", wanted)


def get_picture_path(args: argparse.Namespace) -> Path | None:
    """Return the output file if it is a page or a picture (.html or .svg); None for every other output."""
    path = Path(args.output or "")
    return path if args.output_format == "terminal" and path.suffix in PICTURE_SUFFIXES else None


# Suffixes of text files, which every command writes. A command declares others as OUTPUT_SUFFIXES.
TEXT_SUFFIXES = ("", ".txt", ".log", ".json", ".csv", ".md")


def check_output_path(output: str, more_suffixes: Sequence[str] | None = ()) -> None:
    """Raise an error before anything is measured if the output file has an unknown suffix or no directory.

    None as `more_suffixes` allows every suffix.
    """
    path = Path(output)
    if output == "-":
        return
    if more_suffixes is not None and path.suffix not in (*TEXT_SUFFIXES, *more_suffixes):
        allowed = [*TEXT_SUFFIXES[1:], *more_suffixes]
        raise TesseraError("-o: unknown suffix", got=output, allowed=allowed)
    if not path.absolute().parent.is_dir():
        raise TesseraError("-o: the directory does not exist", got=output, do="create it, or choose another file")


def _get_default_value(option: Option) -> Any:
    if option.action == "flag":
        return False
    if option.action == "append" or (option.several and option.action == "store"):
        return list(option.default or ())
    return option.default


def adapt_options(options: Iterable[Option], **changes: Mapping[str, Any]) -> tuple[Option, ...]:
    """Return options with some fields replaced: `adapt_options(SAMPLING_OPTIONS, warmup={"default_text": "10"})`."""
    return tuple(replace(option, **changes.get(option.name, {})) for option in options)


def omit_options(options: Iterable[Option], *names: str) -> tuple[Option, ...]:
    """Return the options whose names are not in `names`."""
    return tuple(option for option in options if option.name not in names)


def make_sampling(args: argparse.Namespace) -> Sampling:
    """Return the sampling of cases: the defaults or the values of `--quick`, overridden by given options."""
    given = {name: getattr(args, name) for name in ("target", "budget", "warmup", "iterations") if name in args.given}
    return Sampling(**{**(QUICK_SAMPLING if args.quick else {}), **given})


def make_fixed_sampling(args: argparse.Namespace, *, warmup: int, iterations: int) -> Sampling:
    """Return a sampling with a fixed number of iterations, or adaptive sampling if --target or --budget is given."""
    if args.target or args.budget:
        return make_sampling(args)
    return Sampling(
        warmup=warmup if args.warmup is None else args.warmup,
        iterations=iterations if args.iterations is None else args.iterations,
    )


def get_launches(args: argparse.Namespace) -> int:
    """Return the number of launches per case."""
    return int(args.launches if args.launches is not None else (1 if args.quick else DEFAULT_LAUNCHES))


def make_launch(args: argparse.Namespace) -> LaunchConfig:
    """Return the launch configuration of the workers from the parsed options."""
    job = get_current_job()
    ranks, threads = getattr(args, "ranks", None), getattr(args, "threads", None)
    return LaunchConfig(
        spawn=getattr(args, "launcher", "processes"),
        workers=ranks if ranks is not None else job.size if job else 1,
        threads=1 if threads is None else threads,
        pin=not args.no_pin,
        allocator=args.allocator,
        time_limit=args.time_limit,
        tag_output=args.tag_output,
    )


def format_command_line(argv: list[str]) -> str:
    """Return the command line for repeating the command, without paths of this machine and without passwords."""
    import shlex

    from tessera.results.postgres_database import mask_address

    return shlex.join(["tessera", *map(mask_address, argv[1:])])
