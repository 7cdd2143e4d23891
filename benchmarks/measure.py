"""The sampler against its peers: bias, time to an interval, and power to detect a planted slowdown.

    python benchmarks/measure.py                 everything, quiet and under load; leave the machine alone for an hour
    python benchmarks/measure.py --trials 5      a shorter look
    python benchmarks/measure.py --only bias

Needs the extra `bench`. Prints tables and writes benchmarks/results/measure.json with the machine described.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=25, help="per planted share (default: 25)")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds a trial (default: 5)")
    parser.add_argument("--rounds", type=int, default=128, help="of the bias part, over 16 interpreters (default: 128)")
    parser.add_argument("--only", choices=("bias", "quiet", "loaded"), help="one part alone")
    parser.add_argument("-o", type=Path, default=HERE / "results" / "measure.json", help="where to write the results")
    args = parser.parse_args()
    restart_with_steady_allocator()

    import torch  # noqa: F401  (before any fork: launches must not pay for it)
    from measuring.bias import bias
    from measuring.detection import busy_core, detection

    from tessera.measure.environment import environment

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    results: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
    }
    results |= {"trials": args.trials, "budget": args.budget, "load before": os.getloadavg()}
    if args.only in (None, "bias"):
        results["bias"] = bias(args.rounds, say)
        print_bias(results["bias"])
    for name, load in (("quiet", nullcontext()), ("loaded", busy_core(cores[-1]))):
        if args.only in (None, name):
            with load:
                say(f"detection, {name}")
                results[name] = detection(args.trials, args.budget, say)
            print_detection(name, results[name])
        write(args.o, results)


def restart_with_steady_allocator() -> None:
    """The setting acts only on a process that was started with it."""
    from tessera.measure.allocator import allocator_env, current_allocator

    if current_allocator() != "steady":
        os.environ.update(allocator_env("steady"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, *sys.argv])


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def print_bias(rows: list[dict[str, Any]]) -> None:
    print("\nours against the best of the peers (95 % interval)")
    for row in rows:
        tools = ", ".join(f"{tool} {value:.3g}" for tool, value in row["tools"].items())
        ratio = f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) of {row['best peer']}"
        print(f"  {row['workload']:24} {row['what']:26} {ratio:42} [{tools}]")


def print_detection(name: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}: called slower (and faster) of {rows[0]['trials']} trials")
    shares = list(dict.fromkeys(row["planted"] for row in rows))
    print(f"  {'tool':28}" + "".join(f"{share:>12.0%}" for share in shares) + "   seconds a trial")
    for tool in dict.fromkeys(row["tool"] for row in rows):
        mine = [row for row in rows if row["tool"] == tool]
        cells = [f"{row['slower']} ({row['faster']})" for row in mine]
        print(f"  {tool:28}" + "".join(f"{cell:>12}" for cell in cells) + f"   {mine[0]['seconds']:.1f}")


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
