"""Compare `tessera gate` with the rules of other tools on simulated pull requests over 40 operators.

    python benchmarks/gate.py                                 50 pull requests, quiet and with a busy neighbour: hours
    python benchmarks/gate.py --pulls 6 --total 60 --only quiet   a short run
    python benchmarks/gate.py --resume                        continue an interrupted run

Half of the pull requests make one operator 5 % slower, the others change a comment. Each pull request is stored at once
in benchmarks/results/gate.json. Requires the extra `bench`. Leave the machine idle meanwhile.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parts import log, make_parser, run_parts

PARTS = ("quiet", "loaded")


def main() -> None:
    parser = make_parser(__doc__, "gate", PARTS)
    parser.add_argument("--pulls", type=int, default=50, help="number of pull requests per part (default: 50)")
    parser.add_argument("--operators", type=int, default=40, help="number of operators (default: 40)")
    parser.add_argument("--total", type=float, default=120.0, help="seconds for measuring, per tool (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="seed that selects the slowed operators (default: 0)")
    parser.add_argument("--no-peers", action="store_true", help="tessera gate only")
    parser.add_argument("--resume", action="store_true", help="keep the stored pull requests of an interrupted run")
    args = parser.parse_args()

    from gate.subject import calibrate, make_pull_request, make_repository
    from gate.tools import judge_pull_request
    from measure.detection import keep_core_busy

    stored = json.loads(args.o.read_text()) if args.resume and args.o.exists() else {}

    def run(part: str) -> Iterator[dict[str, Any]]:
        earlier = stored.get(part, {})
        planted = earlier.get("planted") or calibrate(args.operators, log)
        pulls: list[dict[str, Any]] = list(earlier.get("pulls", []))
        chooser = random.Random(args.seed)
        operators = [chooser.choice(sorted(planted)) if number % 2 else "" for number in range(args.pulls)]
        core = sorted(os.sched_getaffinity(0))[-1]
        with TemporaryDirectory() as folder, keep_core_busy(core) if part == "loaded" else nullcontext():
            repository = make_repository(Path(folder, "repository"), args.operators)
            for number, operator in enumerate(operators[len(pulls) :], len(pulls)):
                rows = {operator: int(planted[operator]["rows"])} if operator else {}
                branch = make_pull_request(repository, number, rows)
                result = judge_pull_request(repository, branch, args.total, args.operators, not args.no_peers)
                pulls.append({"planted": operator, **result})
                log(
                    f"{part}, pull request {number + 1} of {args.pulls} ({operator or 'unchanged'}): {result['slower']}"
                )
                yield {"planted": planted, "total": args.total, "pulls": pulls, "lines": format_results(pulls)}
        yield {"planted": planted, "total": args.total, "pulls": pulls, "lines": format_results(pulls)}

    run_parts(args, PARTS, run)


def format_results(pulls: list[dict[str, Any]]) -> list[str]:
    """Return the table: slowdowns found, unchanged pull requests with an alarm, and alarms at other operators."""
    slowed = [pull for pull in pulls if pull["planted"]]
    unchanged = [pull for pull in pulls if not pull["planted"]]
    lines = [f"{'tool':32} {'5 % slowdown found':>20} {'false alarms':>16} {'other operators':>18}"]
    for tool in dict.fromkeys(tool for pull in pulls for tool in pull["slower"]):
        found = sum(pull["planted"] in pull["slower"].get(tool, ()) for pull in slowed)
        alarms = sum(bool(pull["slower"].get(tool)) for pull in unchanged)
        others = sum(bool(set(pull["slower"].get(tool, ())) - {pull["planted"]}) for pull in slowed)
        lines.append(
            f"{tool:32} {f'{found} of {len(slowed)}':>20} {f'{alarms} of {len(unchanged)}':>16}"
            f" {f'{others} of {len(slowed)}':>18}"
        )
    seconds = sum(pull["seconds"] for pull in pulls) / max(1, len(pulls))
    return [*lines, f"tessera gate took {seconds:.0f} s per pull request, with builds and start of interpreters"]


if __name__ == "__main__":
    main()
