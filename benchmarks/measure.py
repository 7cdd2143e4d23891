"""The sampler against its peers: bias, time to an interval, and power to detect a planted slowdown.

    python benchmarks/measure.py                 everything, quiet and under load; leave the machine alone for an hour
    python benchmarks/measure.py --trials 5      a shorter look
    python benchmarks/measure.py --only bias

Needs the extra `bench`. Prints tables and writes benchmarks/results/measure.json with the machine described; a part
that is run alone replaces its own results there.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from parts import begin, options, run_parts, say

PARTS = ("bias", "quiet", "loaded")


def main() -> None:
    parser = options(__doc__, "measure", PARTS)
    parser.add_argument("--trials", type=int, default=25, help="per planted share (default: 25)")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds a trial (default: 5)")
    parser.add_argument("--rounds", type=int, default=128, help="of the bias part, over 16 interpreters (default: 128)")
    args = begin(parser)

    import torch  # noqa: F401  (before any fork: launches must not pay for it)
    from measuring.bias import bias
    from measuring.detection import busy_core, detection

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])

    def run(part: str) -> dict[str, Any]:
        if part == "bias":
            rows = bias(args.rounds, say)
            return {"rounds": args.rounds, "rows": rows, "lines": bias_lines(rows)}
        with busy_core(cores[-1]) if part == "loaded" else nullcontext():
            rows = detection(args.trials, args.budget, say)
        return {"trials": args.trials, "budget": args.budget, "rows": rows, "lines": detection_lines(rows)}

    run_parts(args, PARTS, run)


def bias_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["ours against the best of the peers (95 % interval)"]
    for row in rows:
        tools = ", ".join(f"{tool} {value:.3g}" for tool, value in row["tools"].items())
        ratio = f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) of {row['best peer']}"
        lines.append(f"  {row['workload']:24} {row['what']:26} {ratio:42} [{tools}]")
    return lines


def detection_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"called slower (and faster) of {rows[0]['trials']} trials"]
    shares = list(dict.fromkeys(row["planted"] for row in rows))
    lines.append(f"  {'tool':28}" + "".join(f"{share:>12.0%}" for share in shares) + "   seconds a trial")
    for tool in dict.fromkeys(row["tool"] for row in rows):
        mine = [row for row in rows if row["tool"] == tool]
        cells = [f"{row['slower']} ({row['faster']})" for row in mine]
        lines.append(f"  {tool:28}" + "".join(f"{cell:>12}" for cell in cells) + f"   {mine[0]['seconds']:.1f}")
    return lines


if __name__ == "__main__":
    main()
