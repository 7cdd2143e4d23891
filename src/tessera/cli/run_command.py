"""Run the benchmarks of a Python file: functions decorated with `@tessera.benchmark`.

Every combination of axis values is one case. Each case runs in fresh processes like the cases of every other command,
and its record can be compared, reported and exported.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tessera.axes import Axes, Axis, Option, parse_bool
from tessera.cli.execute import execute_and_print, make_plan, print_cases
from tessera.cli.options import (
    LIST_CASES_OPTION,
    RANK_OPTIONS,
    RESULT_OPTIONS,
    SAMPLING_OPTIONS,
    SWEEP_OPTION,
    TOTAL_OPTION,
    WORKER_OPTIONS,
)
from tessera.errors import TesseraError
from tessera.functions.benchmark import Benchmark
from tessera.functions.cases import FEATURE, make_cases, select_benchmarks
from tessera.results.record import compute_exit_code

EPILOG = """\
examples:
  tessera run my_benchmarks.py                          all benchmarks of the file
  tessera run my_benchmarks.py 'sort_*' --quick         benchmarks by name or glob
  tessera run my_benchmarks.py --sweep size=1000,10000  other values of an axis
  tessera run my_benchmarks.py --run-name before        later again as `after`, then `tessera compare before after`

a benchmark file:
  import tessera

  @tessera.benchmark(size=[1_000, 100_000])
  def sort_list(size):
      data = list(range(size, 0, -1))    # set-up, not timed
      return lambda: sorted(data)        # timed
"""

OPTIONS = (
    Option(name="file", positional="FILE", help="Python file with functions decorated with @tessera.benchmark"),
    Option(name="names", positional="NAME", several=True, help="benchmarks by name or glob (default: all)"),
    LIST_CASES_OPTION,
    SWEEP_OPTION,
    *SAMPLING_OPTIONS,
    TOTAL_OPTION,
    *RANK_OPTIONS,
    *WORKER_OPTIONS,
    *RESULT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    if args.file is None:
        raise TesseraError("no benchmark file is given", do="see `tessera run --help` for an example")
    if not Path(args.file).is_file():
        raise TesseraError("the benchmark file does not exist", got=args.file)
    benchmarks = select_benchmarks(args.file, args.names or ["*"])
    values = _declare_axes(benchmarks).read_values({}, args.sweep)
    selected = make_cases(benchmarks, values)
    if args.list:
        return print_cases(selected, args)
    plan = make_plan(args, selected, budget=args.total).divide_budget()
    return compute_exit_code(execute_and_print(plan, args, suite=f"run {Path(args.file).name}"))


def _declare_axes(benchmarks: Sequence[Benchmark]) -> Axes:
    """Declare the axes of all benchmarks, so that `--sweep` converts values to the type of the declared values."""
    types = {axis: type(values[0]) for entry in benchmarks for axis, values in entry.axes.items()}
    return Axes(FEATURE, tuple(Axis(name=axis, parse=_make_value_parser(axis, kind)) for axis, kind in types.items()))


def _make_value_parser(axis: str, kind: type) -> Any:
    if kind is bool:
        return parse_bool

    def parse(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise TesseraError(
                f"invalid value of axis {axis}", got=text, allowed=f"values of type {kind.__name__}"
            ) from None

    return parse
