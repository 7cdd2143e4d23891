"""The same networks split over two ranks by Tessera, by PhysicsNeMo's ShardTensor and by DistConv: time and refusals.

The peers run in an interpreter of their own, named by TESSERA_PEERS_PYTHON, which has nvidia-physicsnemo and can import
`distconv` and the torch of this interpreter; without it only Tessera runs. Every peer and network is a launch of
torchrun with two ranks of one thread, gloo and the CPU. An output is *wrong* if it differs from that of the unsplit
network by more than 1e-4 of the largest value.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from parts import limit_to_two_cores
from zoo_run import make_worker_env

from halo.peers_worker import NETWORKS, SPLITS

WORKER = Path(__file__).with_name("peers_worker.py")
STEPS, TOLERANCE, TIME_LIMIT_SECONDS = 20, 1e-4, 180


def run(say: Callable[[str], None], *, networks: Sequence[str] = (), small: bool = False) -> Iterator[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    peers_python = os.environ.get("TESSERA_PEERS_PYTHON")
    with limit_to_two_cores():
        for network in filter(None, map(str.strip, NETWORKS.splitlines())):
            if networks and not any(name in network for name in networks):
                continue
            row = rows[network] = {}
            for peer in SPLITS if peers_python else ("tessera",):
                python = sys.executable if peer == "tessera" else str(peers_python)
                row[peer] = _launch(python, peer=peer, network=network, steps=3 if small else STEPS)
                say(f"{network}, {peer}: {_describe(row[peer], row['tessera'])}")
            yield {"networks": rows, "lines": list(_tabulate(rows))}


def _launch(python: str, **task: Any) -> dict[str, Any]:
    command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(WORKER)]
    try:
        process = subprocess.run(
            [*command, json.dumps(task)],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
            env=make_worker_env() | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"no result in {TIME_LIMIT_SECONDS} s"}
    for line in process.stdout.splitlines():
        if line.startswith("result "):
            result: dict[str, Any] = json.loads(line.removeprefix("result "))
            return result
    return {"refused": (process.stderr.strip().splitlines() or ["no output"])[-1][:160]}


def _describe(result: dict[str, Any], ours: dict[str, Any]) -> str:
    if "refused" in result:
        return f"refused: {result['refused']}"
    if "wrong" in result or result["error"] > TOLERANCE:
        return f"WRONG: {result.get('wrong') or format(result['error'], '.1e')}"
    seconds = statistics.median(result["seconds"])
    ratio = f", {seconds / statistics.median(ours['seconds']):.2f}x of Tessera" if "seconds" in ours else ""
    return f"{seconds * 1e3:.2f} ms{ratio}, error {result['error']:.0e}"


def _tabulate(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    for network, row in rows.items():
        yield network
        yield from (f"  {peer:12} {_describe(result, row['tessera'])}" for peer, result in row.items())
