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

import tempfile
from pathlib import Path

from parts import begin, options, run_modules, say

PARTS = ("overlap", "streaming", "computing", "offload", "limit")


def main() -> None:
    parser = options(__doc__, "phased", PARTS)
    parser.add_argument("--small", action="store_true", help="small sizes and few rounds; the figures mean nothing")
    args = begin(parser)
    if args.small and args.o == parser.get_default("o"):
        args.o = Path(tempfile.gettempdir(), "phased-small.json")
    run_modules(args, PARTS, "phasing", say, small=args.small)


if __name__ == "__main__":
    main()
