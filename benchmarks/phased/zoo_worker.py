"""Worker of the zoo: runs every network phased and plain, and prints a line of JSON for each run."""

from __future__ import annotations

import copy
import json
import math
import sys
import warnings
import zlib
from typing import Any

import torch
from torch import nn
from zoo_run import list_chosen

from phased.zoo_networks import Call, list_networks
from tessera.phased import PhasedModel
from tessera.phased.choices import SCHEDULES
from tessera.phased.paging.output_comparison import compute_difference

MAX_DIFFERENCE = {"data-parallel": 1e-4}
DEFAULT_MAX_DIFFERENCE = 1e-6
PASSES = 3


def run_network(network: nn.Module, call: Call, schedule: str) -> dict[str, Any]:
    """Compare passes of a network under one schedule with plain torch; the budget is a quarter of the weights."""
    plain = copy.deepcopy(network)
    size = sum(value.nbytes for value in network.state_dict().values())
    budget = max(size // 4, 1)
    least = PhasedModel.compute_min_budget(network, schedule=schedule)
    quarter = least <= budget
    with PhasedModel(network, schedule=schedule, budget=max(budget, least), threads=1) as phased, torch.no_grad():
        worst = 0.0
        for number in range(PASSES):
            torch.manual_seed(number)
            expected = plain(*call[0], **call[1])
            torch.manual_seed(number)
            worst = max(worst, compute_difference(phased(*call[0], **call[1]), expected))
        return {"error": worst, "quarter": quarter, "misses": phased.misses, "phases": len(phased.phases)}


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, build in list_chosen(dict(list_networks()), sys.argv[1:]):
        torch.manual_seed(zlib.crc32(name.encode()))
        try:
            network, call = build()
            network = network.eval()
            with torch.no_grad():
                copy.deepcopy(network)(*call[0], **call[1])
        except Exception as error:
            print(json.dumps({"name": name, "verdict": "not runnable", "detail": str(error)[:300]}), flush=True)
            continue
        result: dict[str, Any] = {"name": name, "verdict": "exact", "detail": "", "schedules": {}}
        for schedule in SCHEDULES:
            try:
                run = run_network(network, call, schedule)
            except Exception as error:
                run = {"error": math.inf, "detail": f"{type(error).__name__}: {error}"[:300]}
                result["verdict"], result["detail"] = "crashed", f"{schedule}: {run['detail']}"
            else:
                if not run["error"] <= MAX_DIFFERENCE.get(schedule, DEFAULT_MAX_DIFFERENCE):
                    result["verdict"], result["detail"] = "wrong", f"{schedule}: {run['error']:.1e}"
            run["error"] = str(run["error"]) if math.isinf(run["error"]) else run["error"]
            result["schedules"][schedule] = run
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
