"""Threads that stand for cores working side by side: as many as torch may use, each with a share of the cores.

To share out every small product over the threads costs more than it gains: they would wait for each other thousands
of times. So each thread takes whole cores, and torch computes with one thread inside of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch


def side_by_side(parts: Sequence[Sequence[Callable[[], object]]]) -> None:
    """Make the calls of all parts: within a part in order, the parts shared out over torch's threads."""
    count = min(torch.get_num_threads(), len(parts))
    if count < 2:
        _in_order(parts)
        return
    each = -(-len(parts) // count)
    shares = [parts[first : first + each] for first in range(0, len(parts), each)]
    for done in [_pool(count, os.getpid()).submit(_in_order, share) for share in shares]:
        done.result()


def _in_order(parts: Sequence[Sequence[Callable[[], object]]]) -> None:
    for part in parts:
        for call in part:
            call()


@lru_cache(maxsize=4)
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """Threads of a process (one that was forked has none of its parent's), each with one thread of torch's."""
    before, started = torch.get_num_threads(), threading.Barrier(count)

    def begin() -> None:
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="cores")
    for begun in [pool.submit(begin) for _ in range(count)]:
        begun.result()
    torch.set_num_threads(before)  # a thread that sets its own number also sets that of threads to come
    return pool
