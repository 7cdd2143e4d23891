"""Benchmarks of the halo exchange, compared with plain copies, other transports and unsplit computation.

    python benchmarks/halo.py                    all parts (an hour on an idle machine)
    python benchmarks/halo.py --only exchange    borders of four sizes: our transports, a plain copy, gloo
    python benchmarks/halo.py --only compute     a convolution with its exchange on 2 ranks, and unsplit on 2 threads
    python benchmarks/halo.py --only network     ResNet-50, forward and backward: time, and peak memory of a rank
    python benchmarks/halo.py --only networks    public networks on 2 ranks and unsplit: time, overhead per layer
    python benchmarks/halo.py --only memory      the same networks on 1, 2 and 4 ranks: peak memory; limited memory
    python benchmarks/halo.py --only planner     predicted beside measured steps on 1, 2 and 4 ranks; published figures
    python benchmarks/halo.py --only peers       ShardTensor and DistConv on the same networks: time and refusals
    python benchmarks/halo.py --only zoo         public networks on split images: exactness (long; resumable)
    python benchmarks/halo.py --only wide        halos for 1, 2, 4, 8 convolutions, two hosts with 1 ms latency
    python benchmarks/halo.py --two-hosts        two network namespaces with a slow link: the hidden share

`planner` requires the rates of this host (`tessera doctor --calibrate`), `peers` an interpreter (see halo/peers.py).
--rounds, --minutes, --network and --small limit the parts that have rounds, several networks or small sizes. Requires
the extra `mpi`. Prints tables and writes benchmarks/results/halo.json with the environment. A part that is run alone
replaces its own results, after every step.
"""

from __future__ import annotations

from math import inf

from parts import log, make_parser, parse_arguments, run_modules

PARTS = ("exchange", "compute", "network", "networks", "memory", "planner", "peers", "zoo", "wide", "two-hosts")


def main() -> None:
    parser = make_parser(__doc__, "halo", PARTS)
    parser.add_argument(
        "--two-hosts", dest="only", action="append_const", const="two-hosts", help="the same as --only two-hosts"
    )
    parser.add_argument("--rounds", type=int, help="rounds of `networks` (default: 3), launches of `wide` (default: 3)")
    parser.add_argument(
        "--network",
        action="append",
        metavar="NAME",
        help="part of the name of a network of `networks`, `memory`, `planner`, `zoo`; repeatable (default: all)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=inf,
        help="start no further round of `networks`, launch of `wide` or step of `planner` after so long (default: all)",
    )
    parser.add_argument("--small", action="store_true", help="small sizes, to check that `networks`, … run")
    args = parse_arguments(parser)
    options = {"rounds": args.rounds or 3, "networks": tuple(args.network or ()), "small": args.small}
    options["minutes"] = args.minutes
    run_modules(args, PARTS, "halo", log, kept="networks", **options)


if __name__ == "__main__":
    main()
