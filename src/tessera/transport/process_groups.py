"""The transport of a torch.distributed process group, opened once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from tessera.errors import TesseraError
from tessera.transport.in_process import open_single_rank
from tessera.transport.mixed import open_fastest
from tessera.transport.transport import Transport

_group_transports: WeakKeyDictionary[Any, Transport] = WeakKeyDictionary()
_get_single_rank = cache(open_single_rank)
_groups_of_ranks: WeakKeyDictionary[Any, dict[tuple[int, ...], dist.ProcessGroup]] = WeakKeyDictionary()


def get_group_of_ranks(ranks: Sequence[int]) -> dist.ProcessGroup:
    """Return a process group of some ranks, all of which make this call; repeated calls return the same group.

    `DeviceMesh._flatten` is no alternative: once it was called, torch 2.13 gathers DTensors of that mesh wrongly if two
    dims of the mesh shard the same dim unevenly.
    """
    world = dist.group.WORLD
    assert world is not None
    groups = _groups_of_ranks.setdefault(world, {})
    key = tuple(sorted(ranks))
    if len(key) == dist.get_world_size():
        return world
    if key not in groups:
        groups[key] = dist.new_group(list(key), use_local_synchronization=True)
    return groups[key]


def get_world_transport(ranks: int, group: dist.ProcessGroup | None = None) -> Transport:
    """Return the transport of a process group (default: all ranks); a single rank gets an in-process transport.

    Ranks of one host share memory, ranks of different hosts send messages. All ranks of the group make the first call
    at the same point. Repeated calls return the same transport, because exchanges are cached per transport.
    """
    if ranks == 1:
        return _get_single_rank()
    if not (dist.is_available() and dist.is_initialized()):
        raise TesseraError(
            "the ranks are not connected",
            do="start with torchrun and call torch.distributed.init_process_group('gloo'), or pass a transport",
        )
    group = group or dist.group.WORLD
    if group not in _group_transports:
        _group_transports[group] = open_fastest(group)
    return _group_transports[group]
