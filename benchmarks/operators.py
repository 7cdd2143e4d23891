"""The operator benchmark against its peers and its own promises.

    python benchmarks/operators.py                  everything; leave the machine alone for 40 minutes
    python benchmarks/operators.py --only all       every PyTorch operator, forward and backward, small and medium
    python benchmarks/operators.py --only peers     20 operators: time to an interval, spread over runs
    python benchmarks/operators.py --only ab        a slowdown planted in a second interpreter, 50 unchanged operators
    python benchmarks/operators.py --only mxnet     the operators of MXNet, in the time that opperf took for its own

Needs the extra `bench`, and for `mxnet` `tessera ops --setup-backend mxnet`. Prints tables and writes
benchmarks/results/operators.json with the machine described; a part that is run alone replaces its own results there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parts import begin, options, run_parts, say

PARTS = ("all", "peers", "ab", "mxnet")


def main() -> None:
    parser = options(__doc__, "operators", PARTS)
    parser.add_argument("--runs", type=int, default=10, help="of each tool for the spread (default: 10)")
    parser.add_argument("--trials", type=int, default=10, help="of the planted slowdown (default: 10)")
    args = begin(parser)
    from operating import everything, peers, planted

    run: dict[str, Callable[[], dict[str, Any]]] = {
        "all": lambda: everything.all_operators("torch", ["forward", "backward"], say),
        "peers": lambda: peers.against_peers(args.runs, say),
        "ab": lambda: planted.planted_slowdown(args.trials, say),
        "mxnet": lambda: everything.all_operators("mxnet", ["forward", "backward"], say),
    }
    run_parts(args, PARTS, lambda part: run[part]())


if __name__ == "__main__":
    main()
