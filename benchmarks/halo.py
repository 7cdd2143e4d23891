"""The halo exchange and what it is for, against plain copies, other ways and the uncut computation.

    python benchmarks/halo.py                    everything; leave the machine alone for an hour
    python benchmarks/halo.py --only exchange    borders of four sizes: our transports, a plain copy, gloo
    python benchmarks/halo.py --only compute     a convolution with its exchange on 2 ranks, and uncut on 2 threads
    python benchmarks/halo.py --only network     ResNet-50, forward and backward: time, and memory of a rank
    python benchmarks/halo.py --only two-hosts   two network namespaces, a slow link between them: how much is hidden

Needs the extra `mpi`. Prints tables and writes benchmarks/results/halo.json with the machine described; a part that is
run alone replaces its own results there.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from parts import restart_with_steady_allocator, run_parts, say  # noqa: E402

PARTS = ("exchange", "compute", "network", "two-hosts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part alone; repeatable")
    parser.add_argument("-o", type=Path, default=HERE / "results" / "halo.json", help="where to write the results")
    args = parser.parse_args()
    restart_with_steady_allocator()

    def run(part: str) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(f"haloing.{part.replace('-', '_')}").run(say)
        return found

    run_parts(args.o, args.only or PARTS, run)


if __name__ == "__main__":
    main()
