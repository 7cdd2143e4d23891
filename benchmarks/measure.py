"""Compare the sampler with other tools: bias, time to an interval, and power to detect a planted slowdown.

    python benchmarks/measure.py                 all parts, idle and under load; takes an hour on an idle machine
    python benchmarks/measure.py --trials 5      fewer trials
    python benchmarks/measure.py --only bias

Requires the extra `bench`. Prints tables and writes benchmarks/results/measure.json with a description of the machine.
A part that is run alone replaces only its own results.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from parts import log, make_parser, parse_arguments, run_parts

PARTS = ("bias", "quiet", "loaded")


def main() -> None:
    parser = make_parser(__doc__, "measure", PARTS)
    parser.add_argument("--trials", type=int, default=25, help="trials per planted slowdown (default: 25)")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds per trial (default: 5)")
    parser.add_argument(
        "--rounds", type=int, default=128, help="rounds of the bias part, over 16 interpreters (default: 128)"
    )
    args = parse_arguments(parser)

    import torch  # noqa: F401  (imported before any fork, so that no launch imports it)
    from measure.bias import measure_bias
    from measure.detection import keep_core_busy, measure_detection

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])

    def run(part: str) -> dict[str, Any]:
        if part == "bias":
            rows = measure_bias(args.rounds, log)
            return {"rounds": args.rounds, "rows": rows, "lines": format_bias(rows)}
        with keep_core_busy(cores[-1]) if part == "loaded" else nullcontext():
            rows = measure_detection(args.trials, args.budget, log)
        return {"trials": args.trials, "budget": args.budget, "rows": rows, "lines": format_detection(rows)}

    run_parts(args, PARTS, run)


def format_bias(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["tessera over the best of the other tools (95 % interval)"]
    for row in rows:
        tools = ", ".join(f"{tool} {value:.3g}" for tool, value in row["tools"].items())
        ratio = f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) of {row['best peer']}"
        lines.append(f"  {row['workload']:24} {row['what']:26} {ratio:42} [{tools}]")
    return lines


def format_detection(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"verdicts slower (and faster) in {rows[0]['trials']} trials"]
    shares = list(dict.fromkeys(row["planted"] for row in rows))
    lines.append(f"  {'tool':28}" + "".join(f"{share:>12.0%}" for share in shares) + "   seconds a trial")
    for tool in dict.fromkeys(row["tool"] for row in rows):
        results = [row for row in rows if row["tool"] == tool]
        cells = [f"{row['slower']} ({row['faster']})" for row in results]
        lines.append(f"  {tool:28}" + "".join(f"{cell:>12}" for cell in cells) + f"   {results[0]['seconds']:.1f}")
    return lines


if __name__ == "__main__":
    main()
