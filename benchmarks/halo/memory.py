"""Peak memory of a rank for whole networks on 1, 2 and 4 ranks, and decoding an image in limited memory.

The networks are those of `networks`, each in a process of its own. The peak is that of one step, with the weights and
without the interpreter and the packages. The decoder runs once with the address space of each process limited: an image
that one process cannot decode is decoded by two or four, and compared with the image decoded without a limit.
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
LIMITED, LIMITED_SIZE, LIMIT_BYTES = "AutoencoderKL decoder", 512, 5 * GIB // 4
SMALL_SIZE, SMALL_LIMIT_BYTES = 256, GIB // 3
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
        limited: dict[str, Any] = {}
        size, limit = (SMALL_SIZE, SMALL_LIMIT_BYTES) if small else (LIMITED_SIZE, LIMIT_BYTES)
        if not networks or any(name in LIMITED for name in networks):
            limited = _decode_in_limited_memory(python, size, limit, say)
    lines = [*_tabulate(rows), *_describe_limited(limited, size, limit)]
    yield {"networks": rows, "limited": limited, "lines": lines}


def _decode_in_limited_memory(python: Any, size: int, limit: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Decode an image without a limit, then with limited address space on 1, 2 and 4 ranks."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        task: dict[str, Any] = {"network": LIMITED, "size": size, "work": "limit", "train": False}
        task["file"] = f"{folder}/image.pt"
        launch_worker(python, 1, limit_bytes=0, **task)
        for ranks in RANKS:
            results[str(ranks)] = launch_worker(python, ranks, limit_bytes=limit, **task)
            say(f"decoding in {limit / GIB:.2f} GiB on {ranks} rank(s): {results[str(ranks)]}")
    return results


def _tabulate(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    columns = "".join(f"{f'{ranks} rank(s)':>12}" for ranks in RANKS)
    yield f"{'peak memory of a rank with the weights, MiB':50} weights{columns}"
    for title, row in rows.items():
        peaks = [row[str(ranks)].get("peak_bytes") for ranks in RANKS]
        cells = "".join(f"{'failed' if peak is None else round(peak / MIB):>12}" for peak in peaks)
        yield f"  {title:46} {row['1'].get('weight_bytes', 0) / MIB:9.0f}{cells}"


def _describe_limited(limited: dict[str, Any], size: int, limit: int) -> Iterator[str]:
    if not limited:
        return
    yield f"{LIMITED}, {size} x {size} pixels, address space limited to {limit / GIB:.2f} GiB more per process"
    for ranks, result in limited.items():
        text = (
            f"fails: {result['failed']}"
            if "failed" in result
            else f"{result['seconds'][0]:.1f} s, largest error {result['error']:.1e} of the largest value"
        )
        yield f"  {ranks} rank(s): {text}"
