"""Peak memory of a rank for whole networks on 1, 2 and 4 ranks, and decoding an image in limited memory.

The networks are those of `networks`, each in a process of its own. The peak is that of one step, with the weights and
without the interpreter and the packages. The decoder runs with the address space of each process limited, with ever
smaller limits until one process cannot decode the image; it is then decoded with that limit on two and four ranks, and
compared with the image decoded without a limit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from parts import limit_to_two_cores
from zoo_run import prepare_environment

from halo.networks import launch_worker, list_launches

GIB, MIB = 1 << 30, 1 << 20
RANKS = (1, 2, 4)
LIMITED, LIMITED_SIZE, SMALL_SIZE = "AutoencoderKL decoder", 512, 256
LIMITS = tuple(share * GIB // 16 for share in (20, 16, 14, 12, 10, 8, 6, 4))  # largest first
OMITTED = ("yolov8n", "224")  # the larger ones of the same networks are measured


def run(say: Callable[[str], None], *, networks: Sequence[str] = (), small: bool = False) -> Iterator[dict[str, Any]]:
    python = prepare_environment(say)
    rows: dict[str, dict[str, Any]] = {}
    cases = [case for launch in list_launches(networks, small) for case in launch]
    with limit_to_two_cores():
        for case in cases:
            if not networks and any(word in case.title for word in OMITTED):
                continue
            row = rows[case.title] = {}
            for ranks in RANKS:
                row[str(ranks)] = launch_worker(python, ranks, work="memory", **asdict(case))
                say(f"peak memory of {case.title} on {ranks} rank(s): {row[str(ranks)]}")
            yield {"networks": rows, "lines": list(_tabulate(rows))}
        size = SMALL_SIZE if small else LIMITED_SIZE
        if not networks or any(name in LIMITED for name in networks):
            for limited in _decode_in_limited_memory(python, size, say):
                lines = [*_tabulate(rows), *_describe_limited(limited, size)]
                yield {"networks": rows, "limited": limited, "lines": lines}


def _decode_in_limited_memory(python: Any, size: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Decode an image without a limit; find a limit at which one process fails; decode with it on 2 and 4 ranks."""
    with tempfile.TemporaryDirectory() as folder:
        task: dict[str, Any] = {"network": LIMITED, "size": size, "work": "limit", "train": False}
        task["file"] = f"{folder}/image.pt"
        launch_worker(python, 1, limit_bytes=0, **task)
        limited: dict[str, Any] = {"enough for 1 rank": None}
        for limit in LIMITS:
            result = launch_worker(python, 1, limit_bytes=limit, **task)
            say(f"decoding in {limit / GIB:.2f} GiB on 1 rank: {result}")
            if "failed" in result:
                limited |= {"limit": limit, "ranks": {"1": result}}
                break
            limited["enough for 1 rank"] = limit
        for ranks in RANKS[1:] if "limit" in limited else ():
            limited["ranks"][str(ranks)] = launch_worker(python, ranks, limit_bytes=limited["limit"], **task)
            say(f"decoding in {limited['limit'] / GIB:.2f} GiB on {ranks} ranks: {limited['ranks'][str(ranks)]}")
            yield limited


def _tabulate(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    columns = "".join(f"{f'{ranks} rank(s)':>12}" for ranks in RANKS)
    yield f"{'peak memory of a rank with the weights, MiB':50} weights{columns}"
    for title, row in rows.items():
        peaks = [row[str(ranks)].get("peak_bytes") for ranks in RANKS]
        cells = "".join(f"{'failed' if peak is None else round(peak / MIB):>12}" for peak in peaks)
        yield f"  {title:46} {row['1'].get('weight_bytes', 0) / MIB:9.0f}{cells}"


def _describe_limited(limited: dict[str, Any], size: int) -> Iterator[str]:
    if "limit" not in limited:
        return
    limit = limited["limit"] / GIB
    yield f"{LIMITED}, {size} x {size} pixels, address space limited to {limit:.2f} GiB more per process"
    for ranks, result in limited["ranks"].items():
        text = (
            f"fails: {result['failed']}"
            if "failed" in result
            else f"{result['seconds'][0]:.1f} s, largest error {result['error']:.1e} of the largest value"
        )
        yield f"  {ranks} rank(s): {text}"
