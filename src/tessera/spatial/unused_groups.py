"""Buffers and connections of parallel networks that are no longer used, released on all ranks together.

A rank must not free memory that a peer still reads, and the ranks delete a network at different times. The plans of a
deleted network therefore stay until the ranks agree that all of them have deleted it: when they parallelize the next
network.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any

import torch

from tessera.spatial.tensor.split_tensor import PlanSet, SplitGroup
from tessera.transport.transport import Transport


class GroupRegister:
    """The groups of split tensors of one transport, numbered identically on all ranks."""

    def __init__(self) -> None:
        self._count = 0
        self._plans: dict[int, OrderedDict[Any, PlanSet]] = {}  # of groups that are not released
        self._unused: set[int] = set()

    def add(self, group: SplitGroup) -> None:
        """Register a new group; all ranks call this at the same point."""
        self._plans[self._count] = group.plan_sets
        weakref.finalize(group, self._unused.add, self._count).atexit = False
        self._count += 1

    def release_unused(self, transport: Transport) -> None:
        """Close the plans of groups that no rank uses any more; all ranks call this at the same point."""
        numbers = list(self._plans)
        if not numbers:
            return
        ranks_done = torch.tensor([number in self._unused for number in numbers], dtype=torch.int64)
        transport.all_reduce(ranks_done)
        for number, ranks in zip(numbers, ranks_done.tolist(), strict=True):
            if ranks == transport.size:
                self._unused.discard(number)
                for plans in self._plans.pop(number).values():
                    plans.close()


def register_group(group: SplitGroup) -> None:
    """Register a group, and release the memory of groups that no rank uses any more; all ranks call this.

    Other memory than that which peers map is released with its last reference, and needs no agreement.
    """
    transport = group.transport
    if transport.traits.shares_memory:
        # An attribute of the transport, because the plans refer to the transport: a weak dictionary would keep both.
        register: GroupRegister = vars(transport).setdefault("group_register", GroupRegister())
        register.release_unused(transport)
        register.add(group)
