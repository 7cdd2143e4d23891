"""The driver for all operators: `python -m tessera.operators [--backend torch] [--category pooling]`."""

from __future__ import annotations

import argparse
import os
import sys

from tessera.errors import EXIT_OK, TesseraError
from tessera.measure.samples import Sampling
from tessera.operators.api import run_operators
from tessera.operators.backends import BACKENDS
from tessera.operators.catalogue import find_operators
from tessera.operators.operator import SIZES
from tessera.results.record import compute_exit_code


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tessera.operators",
        description="Measure operators and print a line for each. `tessera ops` does more: runs, tables, comparisons.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators, by name or glob (default: all)")
    parser.add_argument("--category", action="append", default=[], help="all operators of a category; repeatable")
    parser.add_argument("--backend", choices=tuple(BACKENDS), default="torch")
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--budget", type=float, default=0.5, metavar="SECONDS", help="per operator (default: 0.5)")
    args = parser.parse_args()
    try:
        wanted = find_operators(args.names or ([] if args.category else ["*"]), args.category)
        records = run_operators([op.name for op in wanted], args.backend, args.size, Sampling(budget=args.budget))
    except TesseraError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tessera: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_OK
    return compute_exit_code(records)


if __name__ == "__main__":
    sys.exit(main())
