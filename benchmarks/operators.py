"""Compare the operator benchmark with other tools.

    python benchmarks/operators.py                  all parts; an hour and a half on an idle machine
    python benchmarks/operators.py --only all       every PyTorch operator, forward and backward, small and medium
    python benchmarks/operators.py --only interval  20 operators, Tessera and peers: time to a confidence interval
    python benchmarks/operators.py --only spread    20 operators, Tessera and peers: spread over runs
    python benchmarks/operators.py --only ab        a slowdown planted in a second interpreter, 50 unchanged operators
    python benchmarks/operators.py --only mxnet     every MXNet operator in one size, as opperf measures them

Requires the extra `bench`, and for `mxnet` `tessera ops --setup-backend mxnet`. Prints tables and writes
benchmarks/results/operators.json with a description of the machine; a single part replaces only its own results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parts import log, make_parser, parse_arguments, run_parts

PARTS = ("all", "interval", "spread", "ab", "mxnet")


def main() -> None:
    parser = make_parser(__doc__, "operators", PARTS)
    parser.add_argument("--runs", type=int, default=10, help="runs of each tool in part spread (default: 10)")
    parser.add_argument(
        "--trials", type=int, default=10, help="trials of the planted slowdown in part ab (default: 10)"
    )
    args = parse_arguments(parser)
    from operators import all_operators, peers, planted

    run: dict[str, Callable[[], dict[str, Any]]] = {
        "all": lambda: all_operators.measure_all_operators("torch", ["small", "medium"], log),
        "interval": lambda: peers.compare_time_to_interval(log),
        "spread": lambda: peers.compare_spread_over_runs(args.runs, log),
        "ab": lambda: planted.find_planted_slowdown(args.trials, log),
        "mxnet": lambda: all_operators.measure_all_operators("mxnet", ["medium"], log),
    }
    run_parts(args, PARTS, lambda part: run[part]())


if __name__ == "__main__":
    main()
