"""Convolutions on a grid of cores: executed against torch, planned and searched, predicted against published.

    python benchmarks/coregrid.py                     everything; leave the machine alone for ten minutes
    python benchmarks/coregrid.py --only execute      two convolutions of ResNet-50 on the grid, and torch's own
    python benchmarks/coregrid.py --only planning     how long planning and searching take
    python benchmarks/coregrid.py --only published    ResNet-50 predicted for three chips, beside their maker's figures

Prints tables and writes benchmarks/results/coregrid.json with the machine described; a part that is run alone
replaces its own results there.
"""

from __future__ import annotations

from parts import begin, options, run_modules, say

PARTS = ("execute", "planning", "published")

if __name__ == "__main__":
    run_modules(begin(options(__doc__, "coregrid", PARTS)), PARTS, "gridding", say)
