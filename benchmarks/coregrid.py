"""Convolutions on a grid of cores: executed against torch, planned and searched, predicted against published.

    python benchmarks/coregrid.py                     everything; leave the machine alone for ten minutes
    python benchmarks/coregrid.py --only execute      two convolutions of ResNet-50 on the grid, and torch's own
    python benchmarks/coregrid.py --only planning     how long planning and searching take
    python benchmarks/coregrid.py --only published    ResNet-50 predicted for three chips, beside their maker's figures

Prints tables and writes benchmarks/results/coregrid.json with the machine described; a part that is run alone
replaces its own results there.
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

PARTS = ("execute", "planning", "published")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part alone; repeatable")
    parser.add_argument("-o", type=Path, default=HERE / "results" / "coregrid.json", help="where to write the results")
    args = parser.parse_args()
    restart_with_steady_allocator()

    def run(part: str) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(f"gridding.{part}").run(say)
        return found

    run_parts(args.o, args.only or PARTS, run)


if __name__ == "__main__":
    main()
