"""Whole networks: what a tuning finds, against engines tuned by hand; int8, replicas, and what our loop costs.

    python benchmarks/inference.py                    everything; leave the machine alone for two hours
    python benchmarks/inference.py --only tuned       --tune on four networks, against OpenVINO's benchmark_app with its
                                                      throughput hint, ONNX Runtime, torch.compile and torch eager
    python benchmarks/inference.py --only int8        int8 against the best of float32, with its agreement
    python benchmarks/inference.py --only replicas    two pinned replicas of one thread against one of them
    python benchmarks/inference.py --only overhead    our loop against calling the engine, at batch 1

Needs the extras `onnxruntime` and `openvino`, and two cores. Prints tables and writes benchmarks/results/inference.json
with the machine described; a part that is run alone replaces its own results there. `--network` takes some of the four.
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

PARTS = ("tuned", "int8", "replicas", "overhead")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part alone; repeatable")
    parser.add_argument("--network", action="append", help="one network alone; repeatable (default: all four)")
    parser.add_argument("--rounds", type=int, default=8, help="of interleaved bursts (default: 8)")
    parser.add_argument("--tune-time", type=float, default=240.0, help="seconds of each tuning (default: 240)")
    parser.add_argument("-o", type=Path, default=HERE / "results" / "inference.json", help="where to write the results")
    args = parser.parse_args()
    restart_with_steady_allocator()
    from inferring.networks import NETWORKS, Effort

    networks = tuple(args.network or NETWORKS)
    effort = Effort(rounds=args.rounds, tune_time=args.tune_time)

    def run(part: str) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(f"inferring.{part}").run(networks, effort, say)
        return found

    run_parts(args.o, args.only or PARTS, run)


if __name__ == "__main__":
    main()
