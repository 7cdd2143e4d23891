"""The options of `tessera ops`: what to measure, on what, what to show; and which of them go together."""

from __future__ import annotations

import argparse
import ast
import json
from typing import Any

from tessera.cli.options import (
    add_launch,
    add_output,
    add_sampling,
    add_store,
    checked,
    interpreter,
    names,
    option,
)
from tessera.errors import TesseraError, did_you_mean
from tessera.operators.backends import BACKENDS
from tessera.operators.cases import CACHES, DTYPES, FUSED, METRICS, PASSES
from tessera.operators.operator import SIZES
from tessera.operators.skews import ALL_SKEWS
from tessera.suites.suite import parse_duration

CATALOGUE, OPINFO, MODEL, SUITE = "the catalogue", "--source opinfo", "--from-model", "--suite"
# what each source of cases takes of the options that choose them or say how they are sampled
EVERYWHERE = {
    "target",
    "budget",
    "warmup",
    "iterations",
    "quick",
    "launches",
    "total",
    "passes",
    "dtype",
    "seed",
    "fit",
}
TAKEN = {
    CATALOGUE: EVERYWHERE | {"names", "all", "category", "size", "input", "skew", "cache", "fusion", "backend"},
    MODEL: EVERYWHERE - {"fit"} | {"batch_size", "image_size"},
    OPINFO: EVERYWHERE | {"names", "all", "size"},
    SUITE: {"launches", "total", "fit"},
}
CHOOSING = sorted({name for taken in TAKEN.values() for name in taken})
WORDS = {"names": "operators by name", "passes": "--pass"}


def add_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to measure")
    what.add_argument("names", nargs="*", metavar="NAME", help="operators, by name or glob; see --list")
    what.add_argument("--category", type=names, default=[], metavar="A,B", help="all operators of these categories")
    what.add_argument("--all", action="store_true", help="every operator there is")
    what.add_argument(
        "--source", choices=("catalogue", "opinfo"), default="catalogue", help="where operators come from"
    )
    what.add_argument("--from-model", metavar="MODEL", help="every operator call of a network, or of module:callable")
    what.add_argument("--batch-size", type=int, default=1, metavar="N", help="of --from-model (default: 1)")
    what.add_argument("--image-size", type=int, metavar="N", help="of --from-model (default: what it was made for)")
    what.add_argument(
        "--suite", metavar="SUITE", help="the operator cases of a suite: quick, standard, nightly, a file"
    )
    what.add_argument("--operators", metavar="FILE", help="a Python file with more operators, in a tuple OPERATORS")
    what.add_argument("--list", action="store_true", help="list the operators, or those that are named, and end")
    on = parser.add_argument_group("on what")
    for word, allowed, default, dest in (
        ("--backend", BACKENDS, "torch", None),
        ("--size", (*SIZES, "all"), "small,medium", None),
        ("--pass", PASSES, "forward,backward", "passes"),
        ("--dtype", DTYPES, "float32", None),
        ("--skew", ALL_SKEWS, "", None),
        ("--cache", CACHES, "hot", None),
        ("--fusion", FUSED, "compile,library", None),
    ):
        said = f" (default: {default})" if default else ""
        text = f"of {', '.join(allowed)}{said}"
        on.add_argument(word, type=names, default=names(default), metavar="A,B", dest=dest, help=text)
    on.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another shape or argument, e.g. lhs=(1024,1024), kernel_size=3, dtype=float64; repeatable",
    )
    on.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    on.add_argument("--python", type=checked(interpreter), metavar="PATH", help="measure in another interpreter")
    on.add_argument(
        "--setup-backend", metavar="NAME", help="make the interpreter of a backend that has its own, and end"
    )
    shown = parser.add_argument_group("what to show")
    shown.add_argument("--metric", default="time", metavar="NAME", help="to show, rank and compare by (default: time)")
    shown.add_argument("--top", type=int, metavar="N", help="only the N cases with the most of the metric")
    shown.add_argument("--fit", action="store_true", help="time = overhead + n * cost, fitted over the sizes")
    add_sampling(parser)
    parser.add_argument(
        "--total", type=checked(parse_duration), metavar="TIME", help="time for everything, divided over the cases"
    )
    add_launch(parser)
    add_store(parser, writes=True)
    add_output(parser)
    parser.set_defaults(defaults={name: parser.get_default(name) for name in CHOOSING})


def source_of(args: argparse.Namespace) -> str:
    """Where the cases come from."""
    asked = {MODEL: args.from_model, OPINFO: args.source == "opinfo", SUITE: args.suite}
    given = [source for source, wanted in asked.items() if wanted]
    if len(given) > 1:
        raise TesseraError("cases come from one place at a time", got=" and ".join(given))
    return given[0] if given else CATALOGUE


def check_options(args: argparse.Namespace) -> None:
    """Refuse before anything is measured what would be refused, or left unheeded, afterwards."""
    if args.metric not in METRICS:
        raise TesseraError("--metric", got=args.metric, allowed=METRICS, do=did_you_mean(args.metric, METRICS))
    if args.top is not None and args.top < 1:
        raise TesseraError("--top", got=args.top, allowed="1 or more")
    if args.fit and not args.suite and len(set(args.size)) < 2 and "all" not in args.size:
        raise TesseraError("a fit needs two sizes or more", got=",".join(args.size), do="add --size all")
    if args.all and (args.names or args.category):
        got = " ".join([*args.names, *(f"--category {one}" for one in args.category)])
        raise TesseraError("--all is every operator", got=got, do="leave one of them out")
    source = source_of(args)
    for name in CHOOSING:
        if name not in TAKEN[source] and was_given(args, name):
            takes = [WORDS.get(other, option(other)) for other in sorted(TAKEN[source])]
            raise TesseraError(f"{source} has no use for it", got=WORDS.get(name, option(name)), allowed=takes)


def was_given(args: argparse.Namespace, name: str) -> bool:
    """Whether an option is not as it is of itself; no names are an empty list, and of themselves none."""
    return (getattr(args, name) or None) != (args.defaults[name] or None)


def inputs_of(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """What `--input` replaces, by name, and the dtypes, which may be among it."""
    found: dict[str, Any] = {}
    for name, value in map(_input, args.input):
        if name in found:
            raise TesseraError(f"--input {name} is given twice", got=f"{found[name]} and {value}")
        found[name] = value
    if "dtype" not in found:
        return found, args.dtype
    if was_given(args, "dtype"):
        raise TesseraError("the dtype is given twice", got=f"{found['dtype']} and {','.join(args.dtype)}")
    return found, [found.pop("dtype")]


def _input(item: str) -> tuple[str, Any]:
    """`lhs=(1024,1024)` as a name and a value; what is no Python value is a word."""
    name, equals, text = item.partition("=")
    if not (equals and name and text):
        raise TesseraError("--input", got=item, allowed="NAME=VALUE, for example lhs=(1024,1024)")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text
    except TypeError:  # a list as a key
        value = object()
    try:
        json.dumps(value)
    except TypeError:
        raise TesseraError("--input", got=item, allowed="numbers, words, tuples of them") from None
    return name, value
