"""Predict how a training step scales with the number of ranks that its image is cut over, on a machine or many of it.

Strong scaling cuts the same image over more and more ranks; weak scaling gives every rank the same tile. The model
runs on shapes alone, so images and rank counts that this host could never hold take seconds. With --measure the step
really runs on some ranks of this host, and stands beside its prediction.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tessera.cli.options import add_output, checked
from tessera.errors import OK, TesseraError
from tessera.spatial.bench.problem import DTYPES

if TYPE_CHECKING:
    from tessera.machine import Machine
    from tessera.report.tables import Form
    from tessera.spatial.scaling.points import Point
    from tessera.spatial.scaling.table import Measured, Scaling

EPILOG = """\
examples:
  tessera halo scale --machine host --ranks 1,2 --image-size 1024
  tessera halo scale --machine cluster.toml --ranks 1..4096 --image-size 16384 --model resnet50 -o scaling.html
  tessera halo scale --machine host --network 12.5e9,2e-6 --ranks 1..64 --measure 1,2,4 -o scaling.svg

Ranks are workers of the machine (cores of a host) and fill as many machines as it takes. Between machines bytes cross
the machine's `network` link: in its file as [links.network], or given with --network.
"""

METHODS = ("nearest", "square", "vertical", "horizontal")
WEAK_TILE = 512
MEASURED_SIZE = 256


def ranks(text: str) -> tuple[int, ...]:
    """Numbers of ranks from a list, or doubling from one to another.

    >>> ranks("1..16"), ranks("1,3,9"), ranks("3..20")
    ((1, 2, 4, 8, 16), (1, 3, 9), (3, 6, 12, 20))
    """
    first, dots, last = text.partition("..")
    try:
        found = tuple(_doubling(int(first), int(last))) if dots else tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or len(set(found)) != len(found):
        raise TesseraError("not numbers of ranks", got=text, allowed="1..4096 or 1,2,4; each 1 or more")
    return tuple(sorted(found))


def network(text: str) -> tuple[float, float]:
    """Bytes per second and seconds of latency.

    >>> network("12.5e9,2e-6"), network("1e9")
    ((12500000000.0, 2e-06), (1000000000.0, 0.0))
    """
    bandwidth, _, latency = text.partition(",")
    try:
        found = float(bandwidth), float(latency or 0)
    except ValueError:
        found = 0.0, 0.0
    if not (found[0] > 0 and found[1] >= 0):
        raise TesseraError("not a network", got=text, allowed="BYTES/S or BYTES/S,SECONDS, for example 12.5e9,2e-6")
    return found


def configure(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("the machine")
    where.add_argument(
        "--machine", default="host", metavar="NAME|FILE", help="see `tessera list machines` (default: host)"
    )
    where.add_argument(
        "--network",
        type=checked(network),
        metavar="BYTES/S[,SECONDS]",
        help="between machines (default: the machine's)",
    )
    where.add_argument(
        "--ranks",
        type=checked(ranks),
        default=ranks("1..64"),
        metavar="1..N|A,B",
        help="doubling from one number to another, or a list (default: 1..64)",
    )
    what = parser.add_argument_group("the step")
    what.add_argument("--model", default="resnet50", metavar="NAME", help="or module:callable (default: resnet50)")
    what.add_argument("--image-size", type=int, default=2048, metavar="N", help="of strong scaling (default: 2048)")
    what.add_argument(
        "--weak",
        type=int,
        default=WEAK_TILE,
        metavar="N",
        help=f"tile that a rank keeps in weak scaling (default: {WEAK_TILE})",
    )
    what.add_argument("--batch-size", type=int, default=1, metavar="N", help="images at a time (default: 1)")
    what.add_argument(
        "--dtype", choices=tuple(DTYPES), default="float32", help="of weights and activations (default: float32)"
    )
    what.add_argument(
        "--slice-method", choices=METHODS, default="nearest", help="'nearest' to a square for any number (default)"
    )
    real = parser.add_argument_group("measurements")
    real.add_argument(
        "--measure", type=checked(ranks), metavar="A,B", help="run the step on so many ranks of this host"
    )
    real.add_argument(
        "--measure-size",
        type=int,
        default=MEASURED_SIZE,
        metavar="N",
        help=f"image that is run (default: {MEASURED_SIZE})",
    )
    real.add_argument("--quick", action="store_true", help="half a second for each instead of five")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    for name in ("image_size", "weak", "batch_size", "measure_size"):
        if getattr(args, name) < 1:
            raise TesseraError(f"--{name.replace('_', '-')}", got=getattr(args, name), allowed="1 or more")
    from tessera.report.destination import destination

    found = _scaling(args)
    suffix = Path(args.output).suffix if args.output else ""
    if args.form == "terminal" and suffix in (".html", ".svg"):
        _draw(found, Path(args.output))
        _write(found, "terminal", sys.stdout)
        print(f"plot: {args.output}")
        return OK
    with destination(args.output) as stream:
        _write(found, args.form, stream)
    return OK


def _scaling(args: argparse.Namespace) -> Scaling:
    from tessera.spatial.scaling.table import Scaling

    machine = _machine(args)
    strong, weak = _predict(args, machine)
    return Scaling(
        step=f"{args.model}, batch {args.batch_size}, {args.dtype}, on {machine.title}",
        strong=strong,
        weak=weak,
        measured=_measure(args) if args.measure else (),
    )


def _machine(args: argparse.Namespace) -> Machine:
    from tessera.machine import Link, load_machine
    from tessera.measure.environment import environment, host_fingerprint

    machine = load_machine(args.machine, host_fingerprint(environment()))
    if args.network is not None:
        bandwidth, latency = args.network
        given = Link(bandwidth=(bandwidth,), latency=latency)
        sources = {**machine.sources, "links.network": "given on the command line"}
        machine = replace(machine, links={**machine.links, "network": given}, sources=sources)
    if max(args.ranks) > machine.workers.size and "network" not in machine.links:
        raise TesseraError(
            f"{machine.name} has {machine.workers.size} workers, and no figure for a network between machines",
            got=f"{max(args.ranks)} ranks",
            do="give --network BYTES/S,SECONDS, or [links.network] in the machine's file",
        )
    return machine


def _predict(args: argparse.Namespace, machine: Machine) -> tuple[list[Point], list[Point]]:
    from tessera.spatial.scaling.points import mesh_for, predict_step
    from tessera.spatial.scaling.work import step_of

    wanted = [n for n in args.ranks if args.slice_method != "square" or isqrt(n) ** 2 == n]
    if not wanted:
        raise TesseraError("none of these makes a square", got=args.ranks, do="take --slice-method nearest")
    image = (args.image_size, args.image_size)
    meshes = [mesh_for(count, args.slice_method, image) for count in wanted]
    work = step_of(args.model, image, batch=args.batch_size, dtype=args.dtype)
    strong = [predict_step(work, mesh, machine, args.dtype) for mesh in meshes]
    weak = []
    for mesh in meshes:
        grown = step_of(
            args.model, (args.weak * mesh.rows, args.weak * mesh.cols), batch=args.batch_size, dtype=args.dtype
        )
        weak.append(predict_step(grown, mesh, machine, args.dtype))
    return strong, weak


def _measure(args: argparse.Namespace) -> list[Measured]:
    from tessera.machine import load_machine
    from tessera.measure.environment import environment, host_fingerprint
    from tessera.spatial.bench.prediction import machine_over
    from tessera.spatial.scaling.measure import QUICK, SAMPLING, measure_step
    from tessera.spatial.scaling.points import mesh_for, predict_step
    from tessera.spatial.scaling.table import Measured
    from tessera.spatial.scaling.work import step_of

    here = load_machine("host", host_fingerprint(environment()))
    image = (args.measure_size, args.measure_size)
    meshes = [mesh_for(count, args.slice_method, image) for count in args.measure]
    work = step_of(args.model, image, batch=args.batch_size, dtype=args.dtype)
    found = []
    for mesh in meshes:
        print(f"measuring a step on {mesh.size} ranks", file=sys.stderr, flush=True)
        seconds, memory, transport = measure_step(
            args.model, image, mesh, batch=args.batch_size, dtype=args.dtype, sampling=QUICK if args.quick else SAMPLING
        )
        # All these ranks are on one host, however few cores it has.
        machine = machine_over(here, transport, mesh.size) or here
        predicted = predict_step(work, mesh, machine, args.dtype, machines=1)
        found.append(Measured(predicted=predicted, seconds=seconds, memory=memory))
    return found


def _write(found: Scaling, form: Form, stream: TextIO) -> None:
    from tessera.report.line_chart import line_chart
    from tessera.report.tables import render
    from tessera.spatial.scaling.points import efficiencies
    from tessera.spatial.scaling.table import plain

    if form == "json":
        json.dump(plain(found), stream, indent=1)
        stream.write("\n")
        return
    if form == "csv":
        _write_csv(plain(found), stream)
        return
    for title, columns, rows in found.tables:
        if form == "terminal":  # above the table, which may be narrower
            stream.write(f"{title}\n")
        texts = [[cell.text for cell in row] for row in rows]
        render(columns, texts, form, stream, title=title if form == "markdown" else "")
    if form == "terminal" and len(found.strong) > 2:
        first, last = found.strong[0], found.strong[-1]
        stream.write(f"efficiency of strong scaling, {first.ranks:,} to {last.ranks:,} ranks\n")
        chart = line_chart(efficiencies(found.strong), (), width=72, label=lambda share: f"{share:.0%}", height=7)
        stream.write("\n".join(chart) + "\n")


def _write_csv(found: dict[str, Any], stream: TextIO) -> None:
    """One table: a column says of which scaling a row is; what a row does not have is empty."""
    rows = [{"scaling": kind, **row} for kind in ("strong", "weak", "measured") for row in found[kind]]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "x".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})


def _draw(found: Scaling, path: Path) -> None:
    from tessera.report.page import write_page
    from tessera.spatial.scaling.page import scaling_page
    from tessera.spatial.scaling.plot import scaling_svg

    write_page(scaling_svg(found) if path.suffix == ".svg" else scaling_page(found), path)


def _doubling(first: int, last: int) -> Iterator[int]:
    if not 1 <= first <= last:
        raise ValueError
    while first < last:
        yield first
        first *= 2
    yield last
