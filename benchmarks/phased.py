"""Streamed weights compared with the ideal, a plain reader, all weights in memory, and accelerate's disk offload.

    python benchmarks/phased.py                     all parts; takes an hour on an idle machine
    python benchmarks/phased.py --only overlap      I/O and compute equal: compared with the ideal and with sequential
    python benchmarks/phased.py --only streaming    one row: compared with the fastest plain reader of the same file
    python benchmarks/phased.py --only computing    many rows: compared with all weights in memory
    python benchmarks/phased.py --only offload      stacks of linear layers and ResNets: accelerate's disk_offload
    python benchmarks/phased.py --only generation   repeated passes of public networks: accelerate, in a process each
    python benchmarks/phased.py --only decoding     weights of 8 and 4 bits: compared with float32 and bfloat16
    python benchmarks/phased.py --only device       streaming to the device for tests: copies and computing equal
    python benchmarks/phased.py --only zoo          public networks under every schedule: exactness, no times
    python benchmarks/phased.py --only limit        weights of four times the memory limit of the process
    python benchmarks/phased.py --small             all parts with small sizes, to check that they run

Requires the extra `bench`, and 10 GB of disk in the directory for temporary files (TMPDIR). `generation` and `zoo` need
public packages: they are installed into benchmarks/.zoo, or TESSERA_ZOO_PYTHON names an interpreter with them.
Prints tables and writes benchmarks/results/phased.json with a description of the machine; a single part replaces only
its own results there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from parts import log, make_parser, parse_arguments, run_modules

PARTS = ("overlap", "streaming", "computing", "offload", "generation", "decoding", "device", "limit", "zoo")
WITHOUT_ROUNDS = ("limit", "zoo")


def main() -> None:
    parser = make_parser(__doc__, "phased", PARTS)
    parser.add_argument("--small", action="store_true", help="small sizes and few rounds, to check that all parts run")
    parser.add_argument("--rounds", type=int, help="timed rounds of every comparison, to limit the time")
    args = parse_arguments(parser)
    if args.rounds is not None and (args.rounds < 1 or set(args.only or PARTS) & set(WITHOUT_ROUNDS)):
        parser.error("--rounds is 1 or more, and requires --only with other parts than " + " and ".join(WITHOUT_ROUNDS))
    if args.small and args.o == parser.get_default("o"):
        args.o = Path(tempfile.gettempdir(), "phased-small.json")
    rounds = {} if args.rounds is None else {"rounds": args.rounds}
    run_modules(args, PARTS, "phased", log, small=args.small, **rounds)


if __name__ == "__main__":
    main()
