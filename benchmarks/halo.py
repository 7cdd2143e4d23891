"""The halo exchange and what it is for, against plain copies, other ways and the uncut computation.

    python benchmarks/halo.py                    everything; leave the machine alone for an hour
    python benchmarks/halo.py --only exchange    borders of four sizes: our transports, a plain copy, gloo
    python benchmarks/halo.py --only compute     a convolution with its exchange on 2 ranks, and uncut on 2 threads
    python benchmarks/halo.py --only network     ResNet-50, forward and backward: time, and memory of a rank
    python benchmarks/halo.py --two-hosts        two network namespaces, a slow link between them: how much is hidden

Needs the extra `mpi`. Prints tables and writes benchmarks/results/halo.json with the machine described; a part that is
run alone replaces its own results there.
"""

from __future__ import annotations

from parts import begin, options, run_modules, say

PARTS = ("exchange", "compute", "network", "two-hosts")


def main() -> None:
    parser = options(__doc__, "halo", PARTS)
    parser.add_argument(
        "--two-hosts", dest="only", action="append_const", const="two-hosts", help="the same as --only two-hosts"
    )
    run_modules(begin(parser), PARTS, "haloing", say)


if __name__ == "__main__":
    main()
