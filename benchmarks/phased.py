"""Streamed weights against the ideal, the disk, everything in memory, and accelerate's disk offload.

    python benchmarks/phased.py                     everything; leave the machine alone for an hour
    python benchmarks/phased.py --only overlap      I/O and compute equal: against the ideal and one after the other
    python benchmarks/phased.py --only streaming    one row: against the best plain reader of the same file
    python benchmarks/phased.py --only computing    many rows: against everything in memory
    python benchmarks/phased.py --only offload      stacks of linear layers and ResNets: accelerate's disk_offload
    python benchmarks/phased.py --only limit        a network of four times the memory that its process may have
    python benchmarks/phased.py --small             all of it, small: to see that it works

Needs the extra `bench`, and 10 GB of disk in the directory for temporary files (TMPDIR). Prints tables and writes
benchmarks/results/phased.json with the machine described; a part that is run alone replaces its own results there.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from parts import restart_with_steady_allocator, run_parts, say  # noqa: E402

PARTS = ("overlap", "streaming", "computing", "offload", "limit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part alone; repeatable")
    parser.add_argument("--small", action="store_true", help="small sizes and few rounds; the figures mean nothing")
    parser.add_argument("-o", type=Path, help="where to write the results")
    args = parser.parse_args()
    restart_with_steady_allocator()
    usual = Path(tempfile.gettempdir(), "phased-small.json") if args.small else HERE / "results" / "phased.json"

    def run(part: str) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(f"phasing.{part}").run(say, small=args.small)
        return found

    run_parts(args.o or usual, args.only or PARTS, run)


if __name__ == "__main__":
    main()
