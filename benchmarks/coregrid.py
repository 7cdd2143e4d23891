"""Benchmarks of the core grid: execution compared with torch, planning time, and predicted and published throughput.

    python benchmarks/coregrid.py                     all parts (ten minutes on an idle machine)
    python benchmarks/coregrid.py --only execute      two convolutions of ResNet-50 on the core grid and in torch
    python benchmarks/coregrid.py --only planning     time to plan and to search
    python benchmarks/coregrid.py --only published    predicted and published throughput of ResNet-50 on three chips

Prints tables and writes benchmarks/results/coregrid.json with the environment. A part that is run alone replaces its
own results.
"""

from __future__ import annotations

from parts import log, make_parser, parse_arguments, run_modules

PARTS = ("execute", "planning", "published")

if __name__ == "__main__":
    run_modules(parse_arguments(make_parser(__doc__, "coregrid", PARTS)), PARTS, "coregrid", log)
