"""The options of `tessera infer`, in poprun's words where it has some, and the cases that they ask for."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from tessera.cli.infer_values import latency, rate, share, sizes, yes_or_no
from tessera.cli.options import add_output, add_store, checked, names, option, parse_fraction
from tessera.errors import TesseraError
from tessera.inference.configs import Config, load_config
from tessera.inference.engines import ENGINES
from tessera.inference.modes.load import GENERATORS, MODES
from tessera.inference.precision import PRECISIONS
from tessera.inference.replicas.placement import passed_on
from tessera.inference.settings import HINTS, LOCATIONS, NORM_TYPES
from tessera.inference.tune.goal import GOALS
from tessera.measure.allocator import ALLOCATORS, DEFAULT
from tessera.measure.samples import Sampling
from tessera.suites.suite import parse_duration

BUDGET, TARGET = 10.0, 0.02
TUNE_TIME = 300.0
TOP = 12
ALL = "all"  # as a batch size: those of the config
# Options that may hold several values, which are then swept; they are axes of the cases under the same names.
SWEPT = ("model", "engine", "precision", "batch_size", "num_replicas", "cores_per_replica")
ONE_VALUE = (
    *("weights", "seed", "image_size", "norm_type", "group_dim", "expand_ratio"),
    *("half_partial", "hint", "streams", "min_agreement", "device_iterations"),
    *("data", "eight_bit_io", "normalization_location", "prefetch", "num_io_tiles", "dataloader_worker"),
    *("mode", "target_rate", "generator"),
)


def batch_sizes(text: str) -> list[int] | str:
    return ALL if text == ALL else sizes(text)


def add_network(parser: argparse.ArgumentParser) -> None:
    """What is run, and on which images."""
    what = parser.add_argument_group("the network")
    what.add_argument("--config", metavar="NAME|FILE", help="settings under a name; see --list")
    what.add_argument("--model", type=names, metavar="A,B", help="a name, module:callable, timm/NAME or a .onnx file")
    what.add_argument(
        "--batch-size",
        type=checked(batch_sizes),
        metavar="SIZES",
        help="images at a time: 8, or several as 1,2,4..80 (doubling) or 1..80:8; `all` are those of the config",
    )
    what.add_argument("--weights", metavar="FILE", help="safetensors, or torch's format (default: random)")
    what.add_argument("--seed", type=int, metavar="N", help="of random weights and images (default: 0)")
    what.add_argument("--image-size", type=int, metavar="N", help="in pixels (default: what the network is made for)")
    what.add_argument("--norm-type", choices=NORM_TYPES, help="the norm that the network has to have")
    what.add_argument("--group-dim", type=int, metavar="N", help="of an EfficientNet: channels to a group")
    what.add_argument("--expand-ratio", type=int, metavar="N", help="of an EfficientNet")
    data = parser.add_argument_group("its input")
    data.add_argument(
        "--data",
        metavar="WHAT",
        help="generated (through the input pipeline), synthetic (in the engine's memory), or a folder of images",
    )
    data.add_argument("--eight-bit-io", action=argparse.BooleanOptionalAction, help="uint8 to the engine")
    data.add_argument(
        "--normalization-location", choices=(*LOCATIONS, "ipu"), help="where pixels are normalised (ipu: the device)"
    )
    data.add_argument("--num-io-tiles", type=int, metavar="N", help="here: threads that prepare input")
    data.add_argument("--dataloader-worker", type=int, metavar="N", help="processes that decode image files")
    data.add_argument(
        "--prefetch",
        action=argparse.BooleanOptionalAction,
        help="prepare input ahead; --no-prefetch gives the least latency, at the cost of some throughput",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """What runs it, and how it is put to work."""
    engine = parser.add_argument_group("the engine")
    engine.add_argument("--engine", type=names, metavar="A,B", help=f"of {', '.join(ENGINES)}")
    engine.add_argument("--precision", type=names, metavar="A,B", help=f"of {', '.join(PRECISIONS)}")
    engine.add_argument("--half-partial", action=argparse.BooleanOptionalAction, help="sums in half precision")
    engine.add_argument("--hint", choices=HINTS, help="of an engine that takes hints")
    engine.add_argument("--streams", type=int, metavar="N", help="batches at a time, of an engine that has streams")
    engine.add_argument(
        "--min-agreement", type=checked(share), metavar="FRACTION", help="with torch, to be timed at all"
    )
    load = parser.add_argument_group("how it is put to work")
    load.add_argument("--mode", choices=MODES, help="; ".join(f"{name}: {text}" for name, text in MODES.items()))
    load.add_argument(
        "--target-rate", type=checked(rate), metavar="RATE", help="of a server (default: find the highest)"
    )
    load.add_argument(
        "--max-latency", type=checked(latency), metavar="TIME", help="of a server, and of --tune: for example 50ms"
    )
    load.add_argument(
        "--load-generator", dest="generator", choices=GENERATORS, help="who asks a server (default: auto)"
    )
    load.add_argument("--by-operator", action="store_true", help="time every operator of the network in place")
    load.add_argument("--top", type=int, metavar="N", help=f"layers that --by-operator shows (default: {TOP})")
    tune = parser.add_argument_group("tuning")
    tune.add_argument("--tune", action="store_true", help="find the best engine, replicas, threads and batch")
    tune.add_argument("--goal", choices=GOALS, help=f"what is best (default: {GOALS[0]})")
    tune.add_argument(
        "--tune-time",
        type=checked(parse_duration),
        metavar="TIME",
        help=f"for all of it (default: {TUNE_TIME:g}s)",
    )


def add_replicas(parser: argparse.ArgumentParser) -> None:
    """Where the replicas run."""
    group = parser.add_argument_group("replicas")
    group.add_argument("--num-replicas", type=checked(sizes), metavar="N", help="copies of the network (default: 1)")
    group.add_argument("--num-instances", type=int, metavar="N", help="the same: every replica is a process here")
    group.add_argument(
        *("--cores-per-replica", "--ipus-per-replica", "--threads"),
        dest="cores_per_replica",
        type=checked(sizes),
        metavar="N",
        help="cores that a replica is pinned to, with a thread on each (default: 1)",
    )
    group.add_argument(
        "--numa-aware", type=checked(yes_or_no), metavar="yes|no", help="no: the same as --no-pin (default: yes)"
    )
    group.add_argument("--no-pin", action="store_true", help="do not pin replicas to cores")
    group.add_argument(
        "-x", dest="pass_on", action="append", default=[], metavar="NAME[=VALUE]", help="a variable for the replicas"
    )
    group.add_argument("--force", action="store_true", help="run more replicas than there are cores for")
    group.add_argument("--tag-output", action="store_true", help="show what replicas print, tagged with their number")
    group.add_argument("--allocator", choices=tuple(ALLOCATORS), default=DEFAULT, help="malloc setting of the replicas")
    group.add_argument(
        "--time-limit", type=checked(parse_duration), metavar="TIME", help="end a case that takes longer"
    )
    # replicas are started by the cases themselves
    parser.set_defaults(launcher="processes", ranks=None, threads=1)


def add_windows(parser: argparse.ArgumentParser) -> None:
    """How long each case runs, and what becomes of it."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--iterations", type=int, metavar="N", help="windows to take, instead of going on to a target")
    group.add_argument("--device-iterations", type=int, metavar="N", help="batches in a window of --iterations")
    group.add_argument("--warmup", type=int, metavar="N", help="windows that are not counted (default: 2)")
    group.add_argument(
        "--target",
        type=checked(parse_fraction),
        metavar="FRACTION",
        help=f"stop when the median over windows is known to this (default: {TARGET:.0%}%)",
    )
    group.add_argument(
        "--budget",
        type=checked(parse_duration),
        metavar="TIME",
        help=f"or after this (default: {BUDGET:g}s a case)",
    )
    group.add_argument("--launches", type=int, metavar="N", help="new replicas per case (default: 1)")
    group.add_argument("--quick", action="store_true", help="a first look: 10%% target, 2 s per case")
    parser.add_argument("--list", action="store_true", help="list configs, engines and modes, or the cases asked for")
    add_store(parser, writes=True)
    add_output(parser)


def check_use(args: argparse.Namespace) -> None:
    """Refuse options that nobody would read: of a tuning without one, of operators without them, and the reverse."""
    for name, of in (("goal", "tune"), ("tune_time", "tune"), ("top", "by_operator")):
        if getattr(args, name) is not None and not getattr(args, of):
            raise TesseraError(f"{option(name)} is of {option(of)}", do="add that, or leave this out")
    for name in ("list", "resume", "launches") if args.tune else ():
        if getattr(args, name):
            raise TesseraError(f"--tune has no use for {option(name)}", do="leave it out")
    for name in ("target", "budget") if args.iterations is not None else ():
        if getattr(args, name) is not None:
            raise TesseraError(f"--iterations are taken however long they last: no use for {option(name)}")
    for name in ("top", "launches"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise TesseraError(option(name), got=value, allowed="1 or more")


def config_of(args: argparse.Namespace) -> Config | None:
    return None if args.config is None else load_config(args.config)


def sampling_of(args: argparse.Namespace, config: Config | None) -> Sampling:
    """As asked for; otherwise the iterations of the config; otherwise until the rate is known."""
    base = Sampling(target=0.10, budget=2.0) if args.quick else Sampling(target=TARGET, budget=BUDGET)
    given = {k: v for k in ("target", "budget", "warmup", "iterations") if (v := getattr(args, k)) is not None}
    if config is not None and config.iterations and not args.quick and not given.keys() - {"warmup"}:
        given["iterations"] = config.iterations
    return replace(base, **given)


def axes_of(args: argparse.Namespace, config: Config | None) -> dict[str, list[Any]]:
    """The axes of the cases that are asked for, without what the config says."""
    if config is None and args.model is None:
        raise TesseraError("no network named", do="give --model or --config; see `tessera infer --list`")
    axes: dict[str, list[Any]] = {name: value for name in SWEPT if (value := getattr(args, name)) is not None}
    for name, values in axes.items():
        if not values:
            raise TesseraError(f"{option(name)} names nothing", do="name one or more, or leave it out")
    axes |= {name: [value] for name in ONE_VALUE if (value := getattr(args, name)) is not None}
    if args.batch_size == ALL:
        if config is None or not config.batch_sizes:
            raise TesseraError("--batch-size all is of a config", do="name one with --config, or give sizes")
        axes["batch_size"] = list(config.batch_sizes)
    if args.max_latency is not None and not args.tune:
        axes["max_latency"] = [args.max_latency]
    if args.num_instances is not None:
        axes["num_replicas"] = _instances(args.num_instances, axes.get("num_replicas"))
    if args.by_operator:
        axes["by_operator"] = [True]
    if args.pass_on:
        axes["env"] = [passed_on(args.pass_on)]
    if args.force:
        axes["force"] = [True]
    return axes


def _instances(instances: int, replicas: list[int] | None) -> list[int]:
    """poprun has processes and replicas apart; here each replica is a process."""
    if replicas not in (None, [instances]):
        raise TesseraError(
            "every replica is a process of its own here",
            got=f"--num-instances {instances} and {', '.join(map(str, replicas or ()))} replicas",
            do="give both the same number, or one of them",
        )
    return [instances]
