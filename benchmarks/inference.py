"""Whole networks: what a tuning finds, against engines tuned by hand; int8, replicas, and what our loop costs.

    python benchmarks/inference.py                    everything; leave the machine alone for two hours
    python benchmarks/inference.py --only tuned       --tune on four networks, against OpenVINO's benchmark_app with its
                                                      throughput hint, ONNX Runtime, torch.compile and torch eager
    python benchmarks/inference.py --only int8        int8 against the best of float32, with its agreement
    python benchmarks/inference.py --only replicas    two pinned replicas of one thread against one of them
    python benchmarks/inference.py --only overhead    our loop against calling the engine, at batch 1

Needs the extras `onnxruntime` and `openvino`, and two cores. Prints tables and writes benchmarks/results/inference.json
with the machine described; a part that is run alone replaces its own results there. `--network` takes some of the four,
and replaces theirs.
"""

from __future__ import annotations

from parts import begin, options, run_modules, say

PARTS = ("tuned", "int8", "replicas", "overhead")


def main() -> None:
    parser = options(__doc__, "inference", PARTS)
    parser.add_argument("--network", action="append", help="one network alone; repeatable (default: all four)")
    parser.add_argument("--rounds", type=int, default=8, help="of interleaved bursts (default: 8)")
    parser.add_argument("--tune-time", type=float, default=180.0, help="seconds of each tuning (default: 180)")
    args = begin(parser)
    from inferring.networks import NETWORKS, Effort

    effort = Effort(rounds=args.rounds, tune_time=args.tune_time)
    kept = "networks" if args.network else None
    run_modules(args, PARTS, "inferring", tuple(args.network or NETWORKS), effort, say, kept=kept)


if __name__ == "__main__":
    main()
