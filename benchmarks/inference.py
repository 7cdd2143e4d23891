"""Inference benchmarks: tuning against engines tuned by hand, int8, replicas, and the overhead of the timed loop.

    python benchmarks/inference.py                    all parts (two hours on an idle machine)
    python benchmarks/inference.py --only tuned       --tune on four networks, against OpenVINO's benchmark_app with its
                                                      throughput hint, ONNX Runtime, torch.compile and torch eager
    python benchmarks/inference.py --only int8        int8 against the best float32 settings, with the agreement
    python benchmarks/inference.py --only replicas    two pinned replicas of one thread against one of them
    python benchmarks/inference.py --only overhead    the timed loop against plain calls of the engine, at batch size 1

Requires the extras `onnxruntime` and `openvino`, and two cores. Prints tables and writes
benchmarks/results/inference.json with a description of the machine. A part that is run alone replaces only its own
results; with `--network`, only those of the network.
"""

from __future__ import annotations

from parts import log, make_parser, parse_arguments, run_modules

PARTS = ("tuned", "int8", "replicas", "overhead")


def main() -> None:
    parser = make_parser(__doc__, "inference", PARTS)
    parser.add_argument("--network", action="append", help="network to measure; repeatable (default: all four)")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of interleaved bursts (default: 8)")
    parser.add_argument("--tune-time", type=float, default=180.0, help="seconds of each tuning (default: 180)")
    args = parse_arguments(parser)
    from inference.networks import NETWORKS, Effort

    effort = Effort(rounds=args.rounds, tune_time=args.tune_time)
    kept = "networks" if args.network else None
    run_modules(args, PARTS, "inference", tuple(args.network or NETWORKS), effort, log, kept=kept)


if __name__ == "__main__":
    main()
