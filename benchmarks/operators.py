"""The operator benchmark against its peers and its own promises.

    python benchmarks/operators.py                  everything; leave the machine alone for an hour and a half
    python benchmarks/operators.py --only all       every PyTorch operator, forward and backward, small and medium
    python benchmarks/operators.py --only interval  20 operators, we and our peers: time to an interval
    python benchmarks/operators.py --only spread    the same: spread over runs
    python benchmarks/operators.py --only ab        a slowdown planted in a second interpreter, 50 unchanged operators
    python benchmarks/operators.py --only mxnet     those of MXNet, of one size as opperf has them, in the time it took

Needs the extra `bench`, and for `mxnet` `tessera ops --setup-backend mxnet`. Prints tables and writes
benchmarks/results/operators.json with the machine described; a part that is run alone replaces its own results there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parts import begin, options, run_parts, say

PARTS = ("all", "interval", "spread", "ab", "mxnet")


def main() -> None:
    parser = options(__doc__, "operators", PARTS)
    parser.add_argument("--runs", type=int, default=10, help="of each tool for the spread (default: 10)")
    parser.add_argument("--trials", type=int, default=10, help="of the planted slowdown (default: 10)")
    args = begin(parser)
    from operating import everything, peers, planted

    run: dict[str, Callable[[], dict[str, Any]]] = {
        "all": lambda: everything.all_operators("torch", ["small", "medium"], say),
        "interval": lambda: peers.time_to_interval(say),
        "spread": lambda: peers.spread_over_runs(args.runs, say),
        "ab": lambda: planted.planted_slowdown(args.trials, say),
        "mxnet": lambda: everything.all_operators("mxnet", ["medium"], say),
    }
    run_parts(args, PARTS, lambda part: run[part]())


if __name__ == "__main__":
    main()
